#include "training/modules/self_attention.h"

#include <algorithm>

#include "base/text.h"
#include "training/core/slices.h"
#include "training/kernels/elementwise.h"
#include "training/modules/key_value_cache.h"

namespace tutti::training {
namespace {

SelfAttentionOptions checked(SelfAttentionOptions options) {
  if (options.heads < 1 || (options.head_size == 0 && options.width % options.heads != 0)) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("a width of ", options.width, " cannot be divided into ", options.heads, " heads"),
        {.remedy = "use a width that is a multiple of the number of heads"});
  }
  if (options.key_heads == 0) options.key_heads = options.heads;
  if (options.head_size == 0) options.head_size = options.width / options.heads;
  if (options.key_heads < 1 || options.heads % options.key_heads != 0 || options.head_size < 1) {
    throw Error(
        ErrorCode::invalid_argument,
        cat(options.key_heads, " key heads cannot serve ", options.heads, " query heads of size ",
            options.head_size),
        {.remedy = "use a number of query heads that is a multiple of the number of key heads"});
  }
  return options;
}

// Returns true if the key heads cannot be divided evenly over the tensor-parallel ranks.
bool share_key_heads(const ParameterTable& table, const SelfAttentionOptions& options) {
  return options.key_heads % table.mesh().size(Axis::tensor) != 0;
}

// Returns the range of the model's key heads that this rank's query heads use.
Share own_key_heads(const ParameterTable& table, const SelfAttentionOptions& options) {
  const int64_t group = options.heads / options.key_heads;
  const int64_t queries = options.heads / table.mesh().size(Axis::tensor);
  const int64_t first = table.mesh().place(Axis::tensor) * queries;
  return {first / group, (first + queries - 1) / group + 1 - first / group};
}

LinearOptions layer_of_keys(const ParameterTable& table, const SelfAttentionOptions& options) {
  if (!share_key_heads(table, options)) {
    return {.bias = options.bias, .cut = LinearCut::by_outputs};
  }
  if (options.slices > 1) return {.bias = options.bias, .cut = LinearCut::replicated};
  const Share keys = own_key_heads(table, options);
  return {.bias = options.bias,
          .chosen = Share{keys.first * options.head_size, keys.count * options.head_size}};
}

std::vector<Linear> make_inputs(ParameterTable& table, const std::string& name,
                                const SelfAttentionOptions& options) {
  const int64_t queries = options.heads * options.head_size;
  const int64_t keys = options.key_heads * options.head_size;
  std::vector<int64_t> outputs = {queries, keys, keys};
  std::vector<int64_t> packed;
  if (options.in.size() == 1) {
    packed = outputs;
    outputs = {queries + 2 * keys};
  }
  std::vector<Linear> layers;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const LinearOptions cut{.bias = options.bias, .cut = LinearCut::by_outputs, .parts = packed};
    layers.emplace_back(table, cat(name, '.', options.in[i]), options.width, outputs[i],
                        i == 0 ? cut : layer_of_keys(table, options));
  }
  return layers;
}

std::vector<HeadNorm> make_norms(ParameterTable& table, const std::string& name,
                                 const SelfAttentionOptions& options) {
  if (options.head_norm == HeadNormKind::none) return {};
  const int ranks = table.mesh().size(Axis::tensor);
  const int place = table.mesh().place(Axis::tensor);
  HeadNormOptions queries{.kind = options.head_norm,
                          .heads = options.heads,
                          .head_size = options.head_size,
                          .epsilon = options.head_norm_epsilon,
                          .own = even_share(options.heads, place, ranks),
                          .first_slice = place * options.slices / ranks,
                          .slices = std::max(1, options.slices / ranks),
                          .all_slices = options.slices,
                          .sum = ranks > 1 ? options.sum : nullptr};
  HeadNormOptions keys = queries;
  keys.heads = options.key_heads;
  keys.own = even_share(options.key_heads, place, ranks);
  if (share_key_heads(table, options)) {
    keys.own = own_key_heads(table, options);
    if (options.slices > 1) {  // each rank has all key heads
      keys.own = {0, options.key_heads};
      keys.first_slice = 0;
      keys.slices = options.slices;
      keys.sum = nullptr;
    }
  }
  std::vector<HeadNorm> norms;
  norms.emplace_back(table, name + ".q_norm", queries);
  norms.emplace_back(table, name + ".k_norm", keys);
  return norms;
}

// Returns the options with only the heads that this rank's layers compute.
SelfAttentionOptions own_heads(const ParameterTable& table, SelfAttentionOptions options) {
  const int ranks = table.mesh().size(Axis::tensor);
  if (!share_key_heads(table, options)) {
    options.key_heads /= ranks;
  } else if (options.slices == 1) {
    options.key_heads = own_key_heads(table, options).count;
  }
  options.heads /= ranks;
  return options;
}

// Returns the key heads that this rank's queries use, among those that its layers compute.
Share looked_at(const ParameterTable& table, const SelfAttentionOptions& options) {
  const Share all = own_key_heads(table, options);
  const bool makes_all = share_key_heads(table, options) && options.slices > 1;
  return {makes_all ? all.first : 0, all.count};
}

// Splits the columns of `parts` into blocks of `size` and sums every `group` consecutive blocks
// into one block of `sums`, in the summation order of core/slices.h.
void add_up_groups(Arena& arena, ConstTensor parts, int64_t group, int64_t size, Tensor sums) {
  const ArenaScope scope(arena);
  const Tensor row = arena.take(value_type(parts.dtype), 1, parts.cols);
  const Tensor rounded = arena.take(sums.dtype, 1, size);
  const auto part = [&](int64_t index) { return row.col_range(index * size, size); };
  for (int64_t at = 0; at < parts.rows; ++at) {
    convert(parts.row_range(at, 1), row);
    for (int64_t head = 0; head < sums.cols / size; ++head) {
      add_up_in_order(static_cast<int>(group), [&](int into, int term) {
        const Tensor sum = part(head * group + into);
        add(sum, part(head * group + term), sum);
      });
      convert(part(head * group), rounded);
      copy(rounded, sums.row_range(at, 1).col_range(head * size, size));
    }
  }
}

}  // namespace

SelfAttention::SelfAttention(ParameterTable& table, const std::string& name,
                             const SelfAttentionOptions& options)
    : SelfAttention(table, name, Whole{checked(options)}) {}

SelfAttention::SelfAttention(ParameterTable& table, const std::string& name, const Whole& whole)
    : options_(own_heads(table, whole.options)),
      keys_(looked_at(table, whole.options)),
      group_(whole.options.heads / whole.options.key_heads),
      before_(table.mesh().place(Axis::tensor) * options_.heads % group_),
      in_(make_inputs(table, name, whole.options)),
      norms_(make_norms(table, name, whole.options)),
      out_(table, cat(name, '.', options_.out),
           table.mesh().size(Axis::tensor) * options_.heads * options_.head_size, options_.width,
           {.bias = options_.output_bias.value_or(options_.bias),
            .deviation = options_.output_deviation,
            .cut = LinearCut::by_inputs}) {}

Tensor SelfAttention::take(Pass& pass, DType type, int64_t rows, Saved& saved) const {
  for (size_t i = 0; i < norms_.size(); ++i) {
    saved.norms[i].input = pass.arena.take(type, rows, in_[i].outputs());
  }
  return pass.arena.take(type, rows,
                         (options_.heads + 2 * options_.key_heads) * options_.head_size);
}

// Returns the shape. Tokens that are divided over ranks form one sample, because `over_ranks`
// applies their masks.
AttentionShape SelfAttention::shape(const Pass& pass, const Saved& saved) const {
  const MicroBatch& batch = *pass.batch;
  const int64_t samples = batch.partition == nullptr ? batch.samples : 1;
  return {.samples = samples,
          .context = saved.qkv.rows / samples,
          .heads = options_.heads,
          .head_size = options_.head_size,
          .key_heads = keys_.count,
          .group = group_,
          .before = before_,
          .starts = saved.starts.empty() ? batch.document_starts : saved.starts,
          .ends = saved.ends,
          .bits = bits_of(pass)};
}

// Sets the range of keys to which each row attends, as positions in the row's sample. A sliding
// window or a document limits its start; cached keys of earlier calls are included.
void SelfAttention::see(const MicroBatch& batch, Saved& saved) const {
  saved.starts.clear();
  saved.ends.clear();
  if (batch.partition != nullptr || (options_.window == 0 && batch.positions == 0)) return;
  for_each_run(batch, {0, std::ssize(batch.tokens)}, [&](const TokenRun& run) {
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t end = run.position + i + 1;
      const int64_t start = options_.window == 0 ? 0 : std::max<int64_t>(0, end - options_.window);
      const auto row = static_cast<size_t>(run.row + i);
      const int32_t document = batch.document_starts.empty() ? 0 : batch.document_starts[row];
      saved.starts.push_back(std::max(document, static_cast<int32_t>(start)));
      saved.ends.push_back(static_cast<int32_t>(end));
    }
  });
}

void SelfAttention::rotate(const MicroBatch& batch, Tensor qkv, bool back) const {
  if (!options_.rope) return;
  // heads that are side by side in a row
  const int64_t heads = options_.heads + options_.key_heads;
  const auto turn = [&](Tensor rows, int64_t context, int64_t first) {
    back ? options_.rope->rotate_back(rows, heads, context, first)
         : options_.rope->rotate(rows, heads, context, first);
  };
  if (batch.positions == 0) return turn(qkv, qkv.rows / batch.samples, 0);
  for_each_run(batch, {0, qkv.rows}, [&](const TokenRun& run) {
    turn(qkv.row_range(run.row, run.count), run.count, run.position);
  });
}

int64_t SelfAttention::message_bytes(const MicroBatch& batch, DType type) const {
  if (batch.partition == nullptr) return 0;
  return options_.over_ranks->message_bytes(*batch.partition, keys_.count * options_.head_size,
                                            type);
}

Tensor SelfAttention::part(Tensor qkv, size_t layer) const {
  int64_t first = 0;
  for (size_t i = 0; i < layer; ++i) first += in_[i].outputs();
  return qkv.col_range(first, in_[layer].outputs());
}

void SelfAttention::project(Pass& pass, ConstTensor input, Saved& saved, Tensor qkv) const {
  saved.qkv = qkv;
  for (size_t i = 0; i < in_.size(); ++i) {
    const bool has_norm = i < norms_.size();
    in_[i].forward(pass, input, saved.in[i], has_norm ? saved.norms[i].input : part(qkv, i));
    if (has_norm) norms_[i].forward(pass, saved.norms[i], part(qkv, i));
  }
  rotate(*pass.batch, qkv, false);
}

void SelfAttention::attend(Pass& pass, Saved& saved) const {
  see(*pass.batch, saved);
  AttentionShape shape = this->shape(pass, saved);
  const DType type = saved.qkv.dtype;
  saved.attended = pass.arena.take(type, shape.rows(), shape.width());
  ConstQkv inputs = split(ConstTensor(saved.qkv));
  if (pass.batch->partition != nullptr) {
    saved.over_ranks = options_.over_ranks->forward(pass, shape, inputs, saved.attended);
    return;
  }
  saved.lse = pass.arena.take(value_type(type), shape.samples * shape.heads, shape.context);
  if (pass.cache != nullptr) {
    const KeyValueCache::Layer& kept = pass.cache->of(this, type, shape.key_width());
    const Share& here = pass.batch->ranges.front();
    shape.keys = kept.keys.rows;
    require_shapes(shape.samples == 1 && here.first + here.count <= shape.keys, "cache");
    copy_rows(inputs.keys, kept.keys.row_range(here.first, here.count));
    copy_rows(inputs.values, kept.values.row_range(here.first, here.count));
    inputs = {inputs.queries, kept.keys, kept.values};
  }
  causal_attention(shape, inputs, saved.attended, saved.lse, pass.arena);
}

void SelfAttention::finish(Pass& pass, Saved& saved, Tensor output, RowsInTurn* turns) const {
  out_.forward(pass, saved.attended, saved.out, output, turns);
}

void SelfAttention::set_input(Saved& saved, ConstTensor input) const {
  for (size_t i = 0; i < in_.size(); ++i) saved.in[i].input = input;
}

template <bool is_const>
BasicQkv<is_const> SelfAttention::split(BasicTensor<is_const> qkv) const {
  const int64_t queries = options_.heads * options_.head_size;
  const int64_t keys = options_.key_heads * options_.head_size;
  const int64_t first = keys_.first * options_.head_size;
  const int64_t width = keys_.count * options_.head_size;
  return {qkv.col_range(0, queries), qkv.col_range(queries + first, width),
          qkv.col_range(queries + keys + first, width)};
}

// Deterministic mode with several query heads per key head: computes the contribution of each query
// head to a key head's gradient separately, and sums them in one order for any number of ranks.
void SelfAttention::backward_by_heads(Pass& pass, ConstTensor attended_gradient, const Saved& saved,
                                      Tensor gradient, const Gather& gather) const {
  const ArenaScope scope(pass.arena);
  const int64_t size = options_.head_size;
  const Tensor& qkv = saved.qkv;
  const auto take = [&] { return pass.arena.take(qkv.dtype, qkv.rows, options_.heads * size); };
  const ConstQkv own = split(ConstTensor(qkv));
  const Tensor keys = take(), values = take();  // one block for each query head
  for (int64_t head = 0; head < options_.heads; ++head) {
    const int64_t at = (before_ + head) / group_;
    copy_rows(own.keys.col_range(at * size, size), keys.col_range(head * size, size));
    copy_rows(own.values.col_range(at * size, size), values.col_range(head * size, size));
  }
  AttentionShape shape = this->shape(pass, saved);
  shape.key_heads = shape.heads;
  shape.group = 1;
  shape.before = 0;
  const Qkv parts{gradient.col_range(0, options_.heads * size), take(), take()};
  causal_attention_backward(shape, {own.queries, keys, values}, saved.attended, saved.lse,
                            attended_gradient, parts, pass.arena);
  int64_t first = options_.heads * size;
  for (const Tensor& part : {parts.keys, parts.values}) {
    const int64_t width = options_.key_heads * size;
    const bool shared = group_ * options_.key_heads != options_.heads;
    add_up_groups(pass.arena, shared ? gather(part) : ConstTensor(part), group_, size,
                  gradient.col_range(first, width));
    first += width;
  }
}

Tensor SelfAttention::backward(Pass& pass, ConstTensor output_gradient, Saved& saved,
                               const Gather& gather, RowsInTurn* turns) const {
  const Tensor attended_gradient = out_.backward(pass, output_gradient, saved.out);
  const Tensor gradient = pass.arena.take(saved.qkv.dtype, saved.qkv.rows, saved.qkv.cols);
  const ConstQkv inputs = split(ConstTensor(saved.qkv));
  if (pass.batch->partition != nullptr) {
    options_.over_ranks->backward(pass, shape(pass, saved), inputs, saved.attended,
                                  saved.over_ranks, attended_gradient, split(gradient));
  } else if (pass.slices > 1 && group_ > 1) {
    backward_by_heads(pass, attended_gradient, saved, gradient, gather);
  } else {
    causal_attention_backward(shape(pass, saved), inputs, saved.attended, saved.lse,
                              attended_gradient, split(gradient), pass.arena);
  }
  rotate(*pass.batch, gradient, true);
  std::vector<Linear::Backward> layers;
  for (size_t i = 0; i < in_.size(); ++i) {
    const Tensor own = part(gradient, i);
    const bool has_norm = i < norms_.size();
    layers.push_back(
        {&in_[i], has_norm ? norms_[i].backward(pass, own, saved.norms[i]) : own, &saved.in[i]});
  }
  return Linear::backward(pass, layers, turns);
}

}  // namespace tutti::training
