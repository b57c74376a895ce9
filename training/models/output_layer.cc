#include "training/models/output_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "training/core/slices.h"
#include "training/kernels/cross_entropy.h"
#include "training/kernels/elementwise.h"
#include "training/parallel/convert_layout.h"

namespace tutti::training {
namespace {

// Rescales a part's sums of exponentials, which are relative to the part's largest logits, so that
// they are relative to the largest logits of all parts.
template <typename V>
void rescale(std::span<V> sums, std::span<const V> largest) {
  for (size_t row = 0; row < largest.size(); ++row) {
    V* const found = &sums[3 * row];
    if (found[1] != 0) found[1] *= std::exp(found[0] - largest[row]);
    found[0] = 0;
  }
}

template <typename V>
void take_largest(std::span<const V> sums, std::span<V> largest, bool first) {
  for (size_t row = 0; row < largest.size(); ++row) {
    const V found = sums[3 * row];
    largest[row] = first ? found : std::max(largest[row], found);
  }
}

// Copy two of each row's three numbers, those that are summed over ranks, to a list and back.
template <typename V>
void take_sums(std::span<const V> sums, std::span<V> two) {
  for (size_t at = 0; at < two.size(); ++at) two[at] = sums[3 * (at / 2) + 1 + at % 2];
}

template <typename V>
void put(std::span<const V> largest, std::span<const V> two, std::span<V> sums) {
  for (size_t row = 0; row < largest.size(); ++row) {
    sums[3 * row] = largest[row];
    sums[3 * row + 1] = two[2 * row];
    sums[3 * row + 2] = two[2 * row + 1];
  }
}

// Merges `parts` tensors of rows x 3, which follow each other, into the first: the sums over all
// classes of all ranks.
template <typename V>
void merge(Pass& pass, const MeshPlace& place, Tensor all, int parts) {
  const int64_t rows = all.rows / parts;
  const auto part = [&](int index) { return all.row_range(index * rows, rows); };
  const ArenaScope scope(pass.arena);
  const Tensor largest = pass.arena.take(all.dtype, rows, 1);
  for (int index = 0; index < parts; ++index) {
    take_largest<V>(part(index).template values<V>(), largest.template values<V>(), index == 0);
  }
  largest_over_ranks(pass, place, Axis::tensor, largest);
  for (int index = 0; index < parts; ++index) {
    rescale<V>(part(index).template values<V>(), largest.template values<V>());
  }
  add_up_in_order(parts, [&](int into, int term) { add(part(into), part(term), part(into)); });
  const Tensor two = pass.arena.take(all.dtype, rows, 2);
  take_sums<V>(part(0).template values<V>(), two.template values<V>());
  convert_layout(pass, place, two, {rows, 2}, kTensorPartial, kReplicated);
  put<V>(largest.template values<V>(), two.template values<V>(), part(0).template values<V>());
}

}  // namespace

OutputLayer::OutputLayer(const MeshPlace& place, Linear linear, int64_t vocabulary, int64_t chunk)
    : place_(place), linear_(std::move(linear)), vocabulary_(vocabulary), chunk_(chunk) {}

// Calls body(first row, rows, logits) for each chunk; the logits are temporary.
template <typename Body>
void OutputLayer::for_each_chunk(Pass& pass, const Saved& saved, const Body& body) const {
  for (int64_t row = 0; row < saved.input.rows; row += chunk_) {
    const int64_t rows = std::min(chunk_, saved.input.rows - row);
    const ArenaScope scope(pass.arena);
    Linear::Saved linear;
    const Tensor logits = linear_.forward(pass, saved.input.row_range(row, rows), linear);
    body(row, rows, logits, linear);
  }
}

// Computes the sums of `logits`, which has the rows from index `row` on, separately for each of
// this rank's slices.
void OutputLayer::sums_of(const Pass& pass, ConstTensor logits, std::span<const int32_t> targets,
                          Tensor sums, int64_t row) const {
  const int64_t all_rows = std::ssize(pass.batch->targets);
  const int parts = this->parts(pass);
  const Share own = even_share(vocabulary_, place_.place(Axis::tensor), place_.size(Axis::tensor));
  for (int part = 0; part < parts; ++part) {
    const Share slice = even_share(vocabulary_, place_.place(Axis::tensor) * parts + part,
                                   parts * place_.size(Axis::tensor));
    cross_entropy_sums(logits.col_range(slice.first - own.first, slice.count), targets,
                       {slice.first, vocabulary_},
                       sums.row_range(part * all_rows + row, logits.rows));
  }
}

Tensor OutputLayer::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  saved.input = input;
  const std::span<const int32_t> targets = pass.batch->targets;
  if (targets.empty() && !input.empty()) {
    const Tensor own = linear_.forward(pass, input, saved.linear);
    return convert_layout(pass, place_, own, {input.rows, vocabulary_}, kTensorColumns,
                          kReplicated);
  }
  const bool in_chunks = chunk_ > 0;
  const DType type = value_type(input.dtype);
  const int64_t rows = input.rows;
  saved.statistics = pass.arena.take(type, rows, 2);
  saved.logits = in_chunks ? Tensor{} : linear_.forward(pass, input, saved.linear);
  const ArenaScope scope(pass.arena);
  const int parts = this->parts(pass);
  const Tensor sums = pass.arena.take(type, parts * rows, 3);
  if (in_chunks) {
    for_each_chunk(pass, saved, [&](int64_t row, int64_t count, Tensor logits, Linear::Saved&) {
      sums_of(pass, logits, targets.subspan(static_cast<size_t>(row), static_cast<size_t>(count)),
              sums, row);
    });
  } else {
    sums_of(pass, saved.logits, targets, sums, 0);
  }
  if (parts > 1 || place_.size(Axis::tensor) > 1) {
    type == DType::f64 ? merge<double>(pass, place_, sums, parts)
                       : merge<float>(pass, place_, sums, parts);
  }
  pass.loss = cross_entropy(sums.row_range(0, rows), targets, pass.arena.take(DType::f64, 1, rows),
                            saved.statistics);
  return saved.logits;
}

void OutputLayer::start_backward(Pass& pass, const Saved& saved, int64_t row, Tensor logits) const {
  if (pass.weightless()) return zero(logits);
  const Share own = even_share(vocabulary_, place_.place(Axis::tensor), place_.size(Axis::tensor));
  cross_entropy_backward(
      logits,
      pass.batch->targets.subspan(static_cast<size_t>(row), static_cast<size_t>(logits.rows)),
      {own.first, vocabulary_}, saved.statistics.row_range(row, logits.rows), pass.loss_scale,
      logits);
}

Tensor OutputLayer::backward(Pass& pass, Saved& saved, RowsInTurn* turns) const {
  if (chunk_ == 0) {
    start_backward(pass, saved, 0, saved.logits);
    saved.linear.input = saved.input;
    return linear_.backward(pass, saved.logits, saved.linear, turns);
  }
  const DType type = type_of_parts(pass, saved.input.dtype);
  const Tensor gradient = pass.arena.take(type, saved.input.rows, saved.input.cols);
  // A deferred backward_weight reads the gradients of all logits, because the weights may have been
  // released and gathered again.
  if (pass.split) {
    saved.logits = pass.arena.take(saved.input.dtype, saved.input.rows, linear_.outputs());
  }
  for_each_chunk(pass, saved, [&](int64_t row, int64_t rows, Tensor logits, Linear::Saved& linear) {
    start_backward(pass, saved, row, logits);
    copy(linear_.backward_input(pass, logits, linear), gradient.row_range(row, rows));
    if (pass.split) {
      copy(logits, saved.logits.row_range(row, rows));
    } else if (!pass.weightless()) {
      linear_.backward_weight(pass, linear);
    }
  });
  if (pass.split) {
    saved.linear = {saved.input, saved.logits};
    pass.finish([this, &pass, &saved] { linear_.backward_weight(pass, saved.linear); });
  }
  return gradient;
}

}  // namespace tutti::training
