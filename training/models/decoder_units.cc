#include "training/models/decoder_units.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

ResidualStream stream_of(const ParameterTable& table, const DecoderOptions& options) {
  return {table.mesh(), options.width, options.compute.sequence_parallel,
          options.compute.overlaps_sums};
}

StreamNorm norm_of(ParameterTable& table, const std::string& name, const DecoderOptions& options) {
  return {table,
          name,
          stream_of(table, options),
          options.width,
          options.norm,
          options.norm_epsilon,
          options.compute.slices};
}

Linear output_of(ParameterTable& table, const DecoderOptions& options, const Parameter* tied) {
  const LinearOptions cut{.bias = false, .cut = LinearCut::by_outputs, .keeps_precision = true};
  if (tied != nullptr) {
    return {table, table.share(tied), options.width, options.vocabulary, cut};
  }
  Linear output(table, options.names.output, options.width, options.vocabulary, cut);
  table.mark_quantizable();
  return output;
}

}  // namespace

// The embedding.

DecoderEmbedding::DecoderEmbedding(ParameterTable& table, const DecoderOptions& options)
    : context_(options.context),
      width_(options.width),
      stream_(stream_of(table, options)),
      tokens_(table, options.names.embedding, options.vocabulary, options.width, kDecoderDeviation,
              /*is_cut=*/true),
      dropout_(options.dropout, 0) {
  if (!options.learned_positions) return;
  positions_.emplace(table, options.names.positions, options.max_context, options.width,
                     kDecoderDeviation);
}

OutputShape DecoderEmbedding::output_shape() const { return {context_, width_, stream_.layout()}; }

Tensor DecoderEmbedding::forward(Pass& pass, ConstTensor) {
  Saved& saved = saved_[pass.slot];
  const std::span<const int32_t> tokens = pass.batch->tokens;
  // One rank has a token's row and the others have 0, so sums are exact in any type.
  const Tensor output = stream_.sum_of_parts(pass, pass.dtype, [&](Tensor part, RowsInTurn*) {
    tokens_.forward(tokens, part, saved.tokens);
  });
  if (positions_) {
    const ArenaScope scope(pass.arena);
    const Tensor places = pass.arena.take(output.dtype, output.rows, output.cols);
    saved.places.resize(tokens.size());
    for_each_run(*pass.batch, {0, std::ssize(tokens)}, [&](const TokenRun& run) {
      std::iota(saved.places.begin() + run.row, saved.places.begin() + run.row + run.count,
                static_cast<int32_t>(run.position));
    });
    const auto own = std::span<const int32_t>(saved.places)
                         .subspan(static_cast<size_t>(stream_.own_rows(pass).first),
                                  static_cast<size_t>(output.rows));
    positions_->forward(own, places, saved.positions);
    add(output, places, output);
  }
  dropout_.forward(pass, output, stream_.own_rows(pass));
  return output;
}

Tensor DecoderEmbedding::backward(Pass& pass, ConstTensor output_gradient) {
  Saved& saved = saved_[pass.slot];
  ConstTensor gradient = output_gradient;
  if (dropout_.active(pass)) {
    const Tensor copied = pass.arena.take(gradient.dtype, gradient.rows, gradient.cols);
    copy(gradient, copied);
    dropout_.backward(pass, copied, stream_.own_rows(pass));
    gradient = copied;
  }
  gradient = stream_.whole(pass, gradient);
  saved.tokens.output_gradient = gradient;
  saved.positions.output_gradient = gradient;
  saved.positions.indices = saved.places;
  pass.finish([this, &pass, &saved] {
    tokens_.backward_weight(pass, saved.tokens);
    if (positions_) positions_->backward_weight(pass, saved.positions);
  });
  return {};
}

// The block.

DecoderBlock::DecoderBlock(ParameterTable& table, const DecoderOptions& options, int64_t layer,
                           const std::shared_ptr<ExpertLoad>& load)
    : name_(cat(options.names.block, layer)),
      stream_(stream_of(table, options)),
      shape_{options.context, options.width, stream_.layout()},
      selective_(options.compute.selective_recomputation),
      norm_1_(norm_of(table, cat(name_, '.', options.names.attention_norm), options)),
      attention_(table, cat(name_, '.', options.names.attention), options.attention),
      norm_2_(norm_of(table, cat(name_, '.', options.names.mlp_norm), options)),
      feed_forward_(table, cat(name_, '.', options.names.mlp), options.mlp, options.mixture,
                    options.context, layer, load),
      dropout_{Dropout(options.dropout, static_cast<uint64_t>(2 * layer + 1)),
               Dropout(options.dropout, static_cast<uint64_t>(2 * layer + 2))} {}

// Calls `body`. With selective recomputation, then releases the memory that `body` took from the
// arena.
template <typename Body>
void DecoderBlock::recomputable(Arena& arena, Body&& body) const {
  const size_t mark = arena.mark();
  body();
  if (selective_) arena.release(mark);
}

// Computes branch = input + dropout(branch).
void DecoderBlock::add_branch(Pass& pass, const Dropout& dropout, ConstTensor input,
                              Tensor branch) const {
  dropout.forward_add(pass, input, branch, stream_.own_rows(pass));
}

// Divides the samples into parts; `rows`: number of the stream's rows on this rank.
std::vector<DecoderBlock::Part> DecoderBlock::cut(const Pass& pass, int64_t rows) const {
  const MicroBatch& all = *pass.batch;
  const bool is_one = feed_forward_.needs_all_samples() || feed_forward_.exchanges();
  const int64_t count = is_one ? 1 : stream_.parts(pass);
  std::vector<Part> parts(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    Part& part = parts[static_cast<size_t>(i)];
    part.batch = all;
    part.rows = {0, rows};
    if (count == 1) break;
    const int64_t context = rows / all.samples;
    const Share samples = even_share(all.samples, i, count);
    part.rows = {samples.first * context, samples.count * context};
    part.batch.samples = samples.count;
    part.batch.first_sample += static_cast<uint64_t>(samples.first);
    for (std::span<const int32_t>* tokens : {&part.batch.tokens, &part.batch.document_starts}) {
      if (tokens->empty()) continue;
      *tokens = tokens->subspan(static_cast<size_t>(part.rows.first),
                                static_cast<size_t>(part.rows.count));
    }
  }
  return parts;
}

// Starts a pass with the samples of the part.
void DecoderBlock::enter(Part& part, const Pass& pass) {
  PassContext context = pass;
  context.batch = &part.batch;
  part.pass.emplace(Pass{context, pass.arena});
  part.pass->recomputing = pass.recomputing;
  part.pass->split = pass.split;
}

void DecoderBlock::attend(Part& part, ConstTensor input) const {
  Pass& pass = *part.pass;
  Saved& saved = part.saved;
  saved.input = input;
  const Tensor qkv = attention_.take(pass, input.dtype, stream_.rows(pass), saved.attention);
  recomputable(pass.arena, [&] {
    saved.normal_1 = norm_1_.forward(pass, input, saved.norm_1);
    const ArenaScope scope(pass.arena);
    attention_.project(pass, stream_.whole(pass, saved.normal_1), saved.attention, qkv);
  });
  attention_.attend(pass, saved.attention);
  saved.middle = stream_.take(pass);
  part.sum = stream_.start_sum(
      pass, saved.middle, type_of_parts(pass, pass.dtype),
      [&](Tensor sum, RowsInTurn* turns) { attention_.finish(pass, saved.attention, sum, turns); });
}

void DecoderBlock::feed_forward(Part& part, Tensor output) const {
  Pass& pass = *part.pass;
  Saved& saved = part.saved;
  stream_.finish(pass, *part.sum);
  add_branch(pass, dropout_[0], saved.input, saved.middle);
  const Tensor before =
      feed_forward_.take(pass, output.dtype, stream_.rows(pass), saved.feed_forward);
  // With expert parallelism the number of received rows, which are kept for backward, depends on
  // the input.
  const size_t mark = pass.arena.mark();
  saved.normal_2 = norm_2_.forward(pass, saved.middle, saved.norm_2);
  const bool exchanges = feed_forward_.exchanges();
  if (exchanges) {
    saved.whole_2 = stream_.whole(pass, saved.normal_2);
    feed_forward_.receive(pass, saved.whole_2, saved.feed_forward);
  }
  {
    const ArenaScope scope(pass.arena);
    if (!exchanges) saved.whole_2 = stream_.whole(pass, saved.normal_2);
    feed_forward_.project(pass, saved.whole_2, saved.feed_forward, before);
  }
  if (selective_ && !exchanges) pass.arena.release(mark);
  if (!selective_) feed_forward_.activate(pass, saved.feed_forward);
  part.sum = stream_.start_sum(pass, output, type_of_parts(pass, pass.dtype),
                               [&](Tensor sum, RowsInTurn* turns) {
                                 const ArenaScope scope(pass.arena);
                                 if (selective_) feed_forward_.activate(pass, saved.feed_forward);
                                 feed_forward_.finish(pass, saved.feed_forward, sum, turns);
                               });
}

Tensor DecoderBlock::forward(Pass& pass, ConstTensor input) {
  std::vector<Part>& parts = parts_[pass.slot] = cut(pass, input.rows);
  const Tensor output = pass.arena.take(input.dtype, input.rows, input.cols);
  for (Part& part : parts) {
    enter(part, pass);
    attend(part, part.of(input));
  }
  for (Part& part : parts) feed_forward(part, part.of(output));
  for (Part& part : parts) {
    stream_.finish(*part.pass, *part.sum);
    add_branch(*part.pass, dropout_[1], part.saved.middle, part.of(output));
    std::ranges::move(part.pass->losses, std::back_inserter(pass.losses));
  }
  return output;
}

void DecoderBlock::feed_forward_backward(Part& part, ConstTensor output_gradient) const {
  Pass& pass = *part.pass;
  Saved& saved = part.saved;
  if (selective_) feed_forward_.activate(pass, saved.feed_forward);
  if (!feed_forward_.exchanges()) {
    if (selective_) saved.normal_2 = norm_2_.forward(pass, saved.middle, saved.norm_2);
    saved.whole_2 = stream_.whole(pass, saved.normal_2);
  }
  feed_forward_.set_input(saved.feed_forward, saved.whole_2);
  const ConstTensor gradient = dropped(pass, output_gradient, dropout_[1]);
  part.sum = stream_.start_sum_of_gradients(pass, [&](RowsInTurn* turns) {
    return feed_forward_.backward(pass, stream_.whole(pass, gradient), saved.feed_forward, turns);
  });
}

// Returns the gradient of the feed-forward network's input, for this rank's rows.
Tensor DecoderBlock::middle_gradient(Part& part) const {
  Pass& pass = *part.pass;
  const Tensor gradient = stream_.finish_gradients(pass, *part.sum);
  const ConstTensor more = feed_forward_.whole_gradient(part.saved.feed_forward);
  if (more.empty()) return gradient;
  const PartOf own = stream_.own_rows(pass);
  add(gradient, more.row_range(own.first, gradient.rows), gradient);
  return gradient;
}

void DecoderBlock::attend_backward(Part& part, ConstTensor output_gradient) const {
  Pass& pass = *part.pass;
  Saved& saved = part.saved;
  part.gradient = norm_2_.backward(pass, middle_gradient(part), saved.norm_2);
  add(output_gradient, part.gradient, part.gradient);
  if (selective_) saved.normal_1 = norm_1_.forward(pass, saved.input, saved.norm_1);
  attention_.set_input(saved.attention, stream_.whole(pass, saved.normal_1));
  const ConstTensor gradient = dropped(pass, part.gradient, dropout_[0]);
  const auto gather = [&](ConstTensor columns) { return stream_.all_columns(pass, columns); };
  part.sum = stream_.start_sum_of_gradients(pass, [&](RowsInTurn* turns) {
    return attention_.backward(pass, stream_.whole(pass, gradient), saved.attention, gather, turns);
  });
}

Tensor DecoderBlock::input_gradient(Part& part) const {
  Pass& pass = *part.pass;
  const Tensor gradient =
      norm_1_.backward(pass, stream_.finish_gradients(pass, *part.sum), part.saved.norm_1);
  add(part.gradient, gradient, gradient);
  return gradient;
}

Tensor DecoderBlock::backward(Pass& pass, ConstTensor output_gradient) {
  std::vector<Part>& parts = parts_[pass.slot];
  for (Part& part : parts) {
    enter(part, pass);
    feed_forward_backward(part, part.of(output_gradient));
  }
  for (Part& part : parts) attend_backward(part, part.of(output_gradient));
  const bool is_whole = parts.size() == 1;
  Tensor gradient;
  if (!is_whole) {
    gradient = pass.arena.take(output_gradient.dtype, output_gradient.rows, output_gradient.cols);
  }
  for (Part& part : parts) {
    const Tensor its = input_gradient(part);
    if (is_whole) gradient = its;
    if (!is_whole) copy(its, part.of(gradient));
    std::ranges::move(part.pass->weight_work, std::back_inserter(pass.weight_work));
  }
  return gradient;
}

ConstTensor DecoderBlock::dropped(Pass& pass, ConstTensor gradient, const Dropout& dropout) const {
  if (!dropout.active(pass)) return gradient;
  const Tensor copied = pass.arena.take(gradient.dtype, gradient.rows, gradient.cols);
  copy(gradient, copied);
  dropout.backward(pass, copied, stream_.own_rows(pass));
  return copied;
}

// The head.

DecoderHead::DecoderHead(ParameterTable& table, const DecoderOptions& options,
                         const Parameter* tied)
    : stream_(stream_of(table, options)),
      shape_{options.context, options.vocabulary, kTensorColumns},
      norm_(norm_of(table, options.names.last_norm, options)),
      output_(table.mesh(), output_of(table, options, tied), options.vocabulary,
              options.compute.loss_chunk) {}

Tensor DecoderHead::forward(Pass& pass, ConstTensor input) {
  Saved& saved = saved_[pass.slot];
  const Tensor normal = norm_.forward(pass, input, saved.norm);
  return output_.forward(pass, stream_.whole(pass, normal), saved.output);
}

Tensor DecoderHead::backward(Pass& pass, ConstTensor) {
  Saved& saved = saved_[pass.slot];
  ResidualStream::Sum sum = stream_.start_sum_of_gradients(
      pass, [&](RowsInTurn* turns) { return output_.backward(pass, saved.output, turns); });
  return norm_.backward(pass, stream_.finish_gradients(pass, sum), saved.norm);
}

}  // namespace tutti::training
