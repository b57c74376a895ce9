#include "training/models/decoder_units.h"

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
  const LinearOptions cut{.bias = false, .cut = LinearCut::by_outputs};
  if (tied != nullptr) {
    return {table, table.share(tied), options.width, options.vocabulary, cut};
  }
  return {table, options.names.output, options.width, options.vocabulary, cut};
}

}  // namespace

// --- embedding ---

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
  // Of a token one rank has the row, and the others 0: no bit is lost in a sum of any type.
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

// --- block ---

DecoderBlock::DecoderBlock(ParameterTable& table, const DecoderOptions& options, int64_t layer)
    : name_(cat(options.names.block, layer)),
      stream_(stream_of(table, options)),
      shape_{options.context, options.width, stream_.layout()},
      selective_(options.compute.selective_recomputation),
      norm_1_(norm_of(table, cat(name_, '.', options.names.attention_norm), options)),
      attention_(table, cat(name_, '.', options.names.attention), options.attention),
      norm_2_(norm_of(table, cat(name_, '.', options.names.mlp_norm), options)),
      mlp_(table, cat(name_, '.', options.names.mlp), options.mlp),
      dropout_{Dropout(options.dropout, static_cast<uint64_t>(2 * layer + 1)),
               Dropout(options.dropout, static_cast<uint64_t>(2 * layer + 2))} {}

// Where recomputation is selective, what is taken in `body` is given back at its end.
template <typename Body>
void DecoderBlock::recomputable(Arena& arena, Body&& body) const {
  const size_t mark = arena.mark();
  body();
  if (selective_) arena.release(mark);
}

// branch = input + dropout(branch)
void DecoderBlock::add_branch(Pass& pass, const Dropout& dropout, ConstTensor input,
                              Tensor branch) const {
  dropout.forward(pass, branch, stream_.own_rows(pass));
  add(input, branch, branch);
}

Tensor DecoderBlock::forward(Pass& pass, ConstTensor input) {
  Saved& saved = saved_[pass.slot];
  Arena& arena = pass.arena;
  const int64_t rows = stream_.rows(pass);
  saved.input = input;
  const Tensor qkv = arena.take(input.dtype, rows, attention_.projected_width());
  recomputable(arena, [&] {
    saved.normal_1 = norm_1_.forward(pass, input, saved.norm_1);
    const ArenaScope scope(arena);
    attention_.project(pass, stream_.whole(pass, saved.normal_1), saved.attention, qkv);
  });
  attention_.attend(pass, saved.attention);
  const Tensor middle = saved.middle = stream_.sum_of_parts(
      pass, type_of_parts(pass, pass.dtype), [&](Tensor part, RowsInTurn* turns) {
        attention_.finish(pass, saved.attention, part, turns);
      });
  add_branch(pass, dropout_[0], input, middle);

  const Tensor before = arena.take(input.dtype, rows, mlp_.before_width());
  recomputable(arena, [&] {
    saved.normal_2 = norm_2_.forward(pass, middle, saved.norm_2);
    const ArenaScope scope(arena);
    mlp_.project(pass, stream_.whole(pass, saved.normal_2), saved.mlp, before);
  });
  if (!selective_) mlp_.activate(pass, saved.mlp);
  const Tensor output = stream_.sum_of_parts(pass, type_of_parts(pass, pass.dtype),
                                             [&](Tensor part, RowsInTurn* turns) {
                                               const ArenaScope scope(arena);
                                               if (selective_) mlp_.activate(pass, saved.mlp);
                                               mlp_.finish(pass, saved.mlp, part, turns);
                                             });
  add_branch(pass, dropout_[1], middle, output);
  return output;
}

Tensor DecoderBlock::backward(Pass& pass, ConstTensor output_gradient) {
  Saved& saved = saved_[pass.slot];
  if (selective_) {
    mlp_.activate(pass, saved.mlp);
    saved.normal_2 = norm_2_.forward(pass, saved.middle, saved.norm_2);
  }
  mlp_.set_input(saved.mlp, stream_.whole(pass, saved.normal_2));
  const ConstTensor dropped_2 = dropped(pass, output_gradient, dropout_[1]);
  Tensor branch = stream_.sum_of_gradients(pass, [&](RowsInTurn* turns) {
    return mlp_.backward(pass, stream_.whole(pass, dropped_2), saved.mlp, turns);
  });
  const Tensor middle_gradient = norm_2_.backward(pass, branch, saved.norm_2);
  add(output_gradient, middle_gradient, middle_gradient);

  if (selective_) saved.normal_1 = norm_1_.forward(pass, saved.input, saved.norm_1);
  attention_.set_input(saved.attention, stream_.whole(pass, saved.normal_1));
  const ConstTensor dropped_1 = dropped(pass, middle_gradient, dropout_[0]);
  const auto gather = [&](ConstTensor columns) { return stream_.all_columns(pass, columns); };
  branch = stream_.sum_of_gradients(pass, [&](RowsInTurn* turns) {
    return attention_.backward(pass, stream_.whole(pass, dropped_1), saved.attention, gather,
                               turns);
  });
  const Tensor input_gradient = norm_1_.backward(pass, branch, saved.norm_1);
  add(middle_gradient, input_gradient, input_gradient);
  return input_gradient;
}

ConstTensor DecoderBlock::dropped(Pass& pass, ConstTensor gradient, const Dropout& dropout) const {
  if (!dropout.active(pass)) return gradient;
  const Tensor copied = pass.arena.take(gradient.dtype, gradient.rows, gradient.cols);
  copy(gradient, copied);
  dropout.backward(pass, copied, stream_.own_rows(pass));
  return copied;
}

// --- head ---

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
  const Tensor gradient = stream_.sum_of_gradients(
      pass, [&](RowsInTurn* turns) { return output_.backward(pass, saved.output, turns); });
  return norm_.backward(pass, gradient, saved.norm);
}

}  // namespace tutti::training
