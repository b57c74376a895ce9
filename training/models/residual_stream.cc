#include "training/models/residual_stream.h"

#include <algorithm>

#include "training/core/slices.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

// Smallest sum in bytes whose overlap saves more than the division into parts costs.
constexpr int64_t kLeastBytes = 256 << 10;
constexpr int64_t kMostParts = 8;

}  // namespace

ResidualStream::ResidualStream(const MeshPlace& place, int64_t width, bool sequence_parallel,
                               bool overlaps)
    : place_(place),
      width_(width),
      layout_(sequence_parallel && place.size(Axis::tensor) > 1 ? kTensorRows : kReplicated),
      overlaps_(overlaps) {}

PartOf ResidualStream::own_rows(const Pass& pass) const {
  const int64_t all = rows(pass);
  if (!shares_rows()) return {0, all};
  return {even_share(all, place_.place(Axis::tensor), place_.size(Axis::tensor)).first, all};
}

ConstTensor ResidualStream::whole(Pass& pass, ConstTensor own) const {
  return convert_layout(pass, place_, own, {rows(pass), own.cols}, layout_, kReplicated);
}

ConstTensor ResidualStream::all_columns(Pass& pass, ConstTensor own) const {
  return convert_layout(pass, place_, own, {own.rows, own.cols * place_.size(Axis::tensor)},
                        kTensorColumns, kReplicated);
}

int64_t ResidualStream::parts(const Pass& pass) const {
  const MicroBatch& batch = *pass.batch;
  const bool one_by_one = shares_rows() || batch.positions > 0 || pass.slices > 1;
  if (!overlaps_ || place_.size(Axis::tensor) == 1 || pass.mesh == nullptr || one_by_one) return 1;
  const int64_t bytes = rows(pass) * width_ * static_cast<int64_t>(size_of(pass.dtype));
  return std::clamp<int64_t>(std::min(bytes / kLeastBytes, batch.samples), 1, kMostParts);
}

void ResidualStream::finish(Pass& pass, Sum& sum) const {
  const Tensor found = sum.over_ranks.finish(sum.part);
  if (sum.part.data == sum.result.data) return;
  convert(found, sum.result);
  pass.arena.release(sum.mark);
}

Tensor ResidualStream::finish_gradients(Pass& pass, Sum& sum) const {
  const Tensor found = sum.over_ranks.finish(sum.part);
  if (found.dtype == pass.dtype) return found;
  const Tensor result = take(pass);
  convert(found, result);
  return result;
}

Tensor ResidualStream::take(Pass& pass) const {
  return pass.arena.take(pass.dtype, layout_.rows_at(place_, rows(pass)), width_);
}

StreamNorm::StreamNorm(ParameterTable& table, const std::string& name, const ResidualStream& stream,
                       int64_t width, NormKind kind, double epsilon, int slices)
    : stream_(stream),
      norm_(table, name, width, kind, epsilon,
            stream.shares_rows() && slices == 1 ? Placement{.partial = {Axis::tensor}}
                                                : Placement{}) {}

Tensor StreamNorm::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const Tensor input_gradient = norm_.backward_input(pass, output_gradient, saved);
  pass.finish([this, &pass, &saved] { backward_weight(pass, saved); });
  return input_gradient;
}

void StreamNorm::backward_weight(Pass& pass, const Saved& saved) const {
  if (pass.slices == 1) return norm_.backward_weight(pass, saved);
  const ArenaScope scope(pass.arena);
  const bool has_bias = norm_.bias() != nullptr;
  const int64_t width = norm_.gain().value.cols;
  const int ranks = stream_.shares_rows() ? stream_.place().size(Axis::tensor) : 1;
  const int place = ranks == 1 ? 0 : stream_.place().place(Axis::tensor);
  const int count = pass.slices / ranks;
  const int64_t all = stream_.rows(pass);
  const Share own = even_share(all, place, ranks);
  // One row for each slice: the sums for the gain and, beside them, the sums for the bias.
  const Tensor sums = pass.arena.take(value_type(pass.dtype), count, has_bias ? 2 * width : width);
  zero(sums);
  for (int slice = 0; slice < count; ++slice) {
    const Share rows = even_share(all, place * count + slice, pass.slices);
    const Tensor row = sums.row_range(slice, 1);
    norm_.add_gradients(pass, saved, {rows.first - own.first, rows.count}, row.col_range(0, width),
                        has_bias ? row.col_range(width, width) : Tensor{});
  }
  add_up_in_order(count, [&](int into, int term) {
    add(sums.row_range(into, 1), sums.row_range(term, 1), sums.row_range(into, 1));
  });
  const Tensor sum = sums.row_range(0, 1);
  // If the ranks share the rows, each has a term of the sum.
  convert_layout(pass, stream_.place(), sum.reshaped(sum.cols, 1), {sum.cols, 1},
                 ranks > 1 ? kTensorPartial : kReplicated, kReplicated);
  add_values(sum.col_range(0, width), norm_.gain().gradient);
  if (has_bias) add_values(sum.col_range(width, width), norm_.bias()->gradient);
}

}  // namespace tutti::training
