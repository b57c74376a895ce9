#include "training/modules/self_attention.h"

#include <optional>

#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/modules/key_value_cache.h"

namespace tutti::training {
namespace {

SelfAttentionOptions checked(SelfAttentionOptions options) {
  if (options.heads < 1 || (options.head_size == 0 && options.width % options.heads != 0)) {
    throw Error(ErrorCode::invalid_argument,
                cat("a width of ", options.width, " cannot be cut into ", options.heads, " heads"),
                {.remedy = "give a width that is a multiple of the number of heads"});
  }
  if (options.key_heads == 0) options.key_heads = options.heads;
  if (options.head_size == 0) options.head_size = options.width / options.heads;
  if (options.key_heads < 1 || options.heads % options.key_heads != 0 || options.head_size < 1) {
    throw Error(ErrorCode::invalid_argument,
                cat(options.key_heads, " heads of keys cannot serve ", options.heads,
                    " heads of queries of size ", options.head_size),
                {.remedy = "give a number of heads that is a multiple of that of keys"});
  }
  return options;
}

// Of the heads of keys those that serve this rank's heads of queries, where they cannot be cut over
// the tensor ranks: some ranks then have the same ones.
std::optional<Share> own_key_heads(const ParameterTable& table,
                                   const SelfAttentionOptions& options) {
  const int ranks = table.mesh().size(Axis::tensor);
  if (options.key_heads % ranks == 0) return std::nullopt;
  const int64_t group = options.heads / options.key_heads;
  const int64_t queries = options.heads / ranks;
  const int64_t first = table.mesh().place(Axis::tensor) * queries;
  return Share{first / group, (first + queries - 1) / group + 1 - first / group};
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
    LinearOptions chosen{.bias = options.bias, .chosen = own_key_heads(table, options)};
    if (chosen.chosen) {
      chosen.chosen->first *= options.head_size;
      chosen.chosen->count *= options.head_size;
    }
    layers.emplace_back(table, cat(name, '.', options.in[i]), options.width, outputs[i],
                        i > 0 && chosen.chosen ? chosen : cut);
  }
  return layers;
}

// With this rank's heads.
SelfAttentionOptions own_heads(const ParameterTable& table, SelfAttentionOptions options) {
  const int ranks = table.mesh().size(Axis::tensor);
  const std::optional<Share> keys = own_key_heads(table, options);
  options.heads /= ranks;
  options.key_heads = keys ? keys->count : options.key_heads / ranks;
  return options;
}

void copy_rows(ConstTensor from, Tensor to) {
  for (int64_t row = 0; row < from.rows; ++row) {
    copy(from.row_range(row, 1), to.row_range(row, 1));
  }
}

}  // namespace

SelfAttention::SelfAttention(ParameterTable& table, const std::string& name,
                             const SelfAttentionOptions& options)
    : options_(own_heads(table, checked(options))),
      group_(checked(options).heads / checked(options).key_heads),
      before_(table.mesh().place(Axis::tensor) * options_.heads % group_),
      in_(make_inputs(table, name, checked(options))),
      out_(table, cat(name, '.', options_.out),
           table.mesh().size(Axis::tensor) * options_.heads * options_.head_size, options_.width,
           {.bias = options_.bias,
            .deviation = options_.output_deviation,
            .cut = LinearCut::by_inputs}) {}

int64_t SelfAttention::projected_width() const {
  return (options_.heads + 2 * options_.key_heads) * options_.head_size;
}

AttentionShape SelfAttention::shape(const Pass& pass, const Tensor& qkv) const {
  return {.samples = pass.batch->samples,
          .context = qkv.rows / pass.batch->samples,
          .heads = options_.heads,
          .head_size = options_.head_size,
          .key_heads = options_.key_heads,
          .group = group_,
          .before = before_,
          .starts = pass.batch->document_starts};
}

Tensor SelfAttention::part(Tensor qkv, size_t layer) const {
  int64_t first = 0;
  for (size_t i = 0; i < layer; ++i) first += in_[i].outputs();
  return qkv.col_range(first, in_[layer].outputs());
}

void SelfAttention::project(Pass& pass, ConstTensor input, Saved& saved, Tensor qkv) const {
  saved.qkv = qkv;
  for (size_t i = 0; i < in_.size(); ++i) in_[i].forward(pass, input, saved.in[i], part(qkv, i));
  // Queries and keys, which lie side by side.
  if (options_.rope) {
    options_.rope->rotate(qkv, options_.heads + options_.key_heads, shape(pass, qkv).context,
                          pass.batch->first_position);
  }
}

void SelfAttention::attend(Pass& pass, Saved& saved) const {
  AttentionShape shape = this->shape(pass, saved.qkv);
  const DType type = saved.qkv.dtype;
  saved.attended = pass.arena.take(type, shape.rows(), shape.width());
  saved.lse = pass.arena.take(value_type(type), shape.samples * shape.heads, shape.context);
  ConstQkv inputs = split_qkv(shape, ConstTensor(saved.qkv));
  if (pass.cache != nullptr) {
    const KeyValueCache::Layer& kept = pass.cache->of(this, type, shape.key_width());
    shape.past = pass.batch->first_position;
    shape.keys = kept.keys.rows;
    require_shapes(shape.samples == 1 && shape.past + shape.context <= shape.keys, "cache");
    copy_rows(inputs.keys, kept.keys.row_range(shape.past, shape.context));
    copy_rows(inputs.values, kept.values.row_range(shape.past, shape.context));
    inputs = {inputs.queries, kept.keys, kept.values};
  }
  causal_attention(shape, inputs, saved.attended, saved.lse, pass.arena);
}

void SelfAttention::finish(Pass& pass, Saved& saved, Tensor output) const {
  out_.forward(pass, saved.attended, saved.out, output);
}

void SelfAttention::set_input(Saved& saved, ConstTensor input) const {
  for (size_t i = 0; i < in_.size(); ++i) saved.in[i].input = input;
}

Tensor SelfAttention::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const AttentionShape shape = this->shape(pass, saved.qkv);
  const Tensor attended_gradient = out_.backward(pass, output_gradient, saved.out);
  const Tensor gradient = pass.arena.take(saved.qkv.dtype, saved.qkv.rows, saved.qkv.cols);
  causal_attention_backward(shape, split_qkv(shape, ConstTensor(saved.qkv)), saved.attended,
                            saved.lse, attended_gradient, split_qkv(shape, gradient), pass.arena);
  if (options_.rope) {
    options_.rope->rotate_back(gradient, options_.heads + options_.key_heads, shape.context,
                               pass.batch->first_position);
  }
  std::vector<Linear::Backward> layers;
  for (size_t i = 0; i < in_.size(); ++i) {
    layers.push_back({&in_[i], part(gradient, i), &saved.in[i]});
  }
  return Linear::backward(pass, layers);
}

}  // namespace tutti::training
