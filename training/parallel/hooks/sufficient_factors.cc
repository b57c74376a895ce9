#include "training/parallel/hooks/sufficient_factors.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {

SufficientFactors::SufficientFactors(ParameterTable& table, const Layout& layout,
                                     const std::vector<int>& parameters, DType dtype,
                                     Communicator ranks)
    : table_(table), layers_(layout.buckets.size()) {
  const auto allocate = [ranks](size_t bytes) mutable { return ranks.allocate<std::byte>(bytes); };
  for (const int parameter : parameters) {
    const auto number = static_cast<size_t>(parameter);
    const auto bucket = static_cast<size_t>(layout.slots[number].bucket);
    if (layout.buckets[bucket].parameters != std::vector{parameter}) {
      throw Error(ErrorCode::internal,
                  cat("the parameter ", table.specs()[number].name, " has no bucket of its own"));
    }
    const std::vector<int64_t>& shape = table.specs()[number].shape;
    layers_[bucket] =
        std::make_unique<Layer>(Layer{.parameter = parameter,
                                      .outputs = shape[0],
                                      .inputs = shape[1],
                                      .own = FactorRows(shape[1], shape[0], dtype, allocate)});
    table.set_factors(parameter, &layers_[bucket]->own);
  }
}

SufficientFactors::~SufficientFactors() {
  for (const std::unique_ptr<Layer>& layer : layers_) {
    if (layer != nullptr) table_.set_factors(layer->parameter, nullptr);
  }
}

void SufficientFactors::start(Communicator& communicator, int bucket, Tensor) {
  Layer& at = layer(bucket);
  at.ranks = communicator;
  at.own_rows = at.own.rows();
  at.counts.resize(static_cast<size_t>(communicator.size()));
  at.gathers = false;
  at.counting = communicator.all_gather_async({&at.own_rows, 1, DType::i64},
                                              {at.counts.data(), at.counts.size(), DType::i64});
  counted_ = &at;
}

void SufficientFactors::proceed() {
  if (counted_ != nullptr) gather(*std::exchange(counted_, nullptr));
}

void SufficientFactors::gather(Layer& layer) {
  layer.counting.wait();
  const int64_t width = layer.own.width();
  std::vector<uint64_t> values;
  for (const int64_t rows : layer.counts) values.push_back(static_cast<uint64_t>(rows * width));
  layer.rows = std::accumulate(layer.counts.begin(), layer.counts.end(), int64_t{0});
  const int64_t bytes = layer.rows * width * static_cast<int64_t>(size_of(layer.own.dtype()));
  if (bytes > layer.memory_bytes) {
    layer.memory = layer.ranks.allocate<std::byte>(static_cast<size_t>(bytes));
    layer.memory_bytes = bytes;
  }
  const Tensor all = tensor_at(layer.memory.get(), layer.own.dtype(), layer.rows, width);
  if (layer.rows > 0) {
    layer.gather = layer.ranks.all_gatherv_async(as_buffer(layer.own.all()), as_buffer(all),
                                                 Blocks::of(values));
  }
  layer.gathers = true;
}

bool SufficientFactors::test(int bucket) {
  Layer& at = layer(bucket);
  return at.gathers && (at.rows == 0 || at.gather.test());
}

void SufficientFactors::finish(int bucket, Tensor gradients) {
  Layer& at = layer(bucket);
  if (counted_ == &at) proceed();
  if (!at.gathers) return;  // the gather failed to start
  if (at.rows > 0) at.gather.wait();
  const auto start = std::chrono::steady_clock::now();
  FactorRows::multiply(tensor_at(at.memory.get(), at.own.dtype(), at.rows, at.own.width()),
                       tensor_at(gradients.data, gradients.dtype, at.outputs, at.inputs));
  computed_ += std::chrono::steady_clock::now() - start;
  at.own.clear();
}

int64_t SufficientFactors::bytes() const {
  int64_t bytes = 0;
  for (const std::unique_ptr<Layer>& layer : layers_) {
    if (layer != nullptr) bytes += layer->own.bytes() + layer->memory_bytes;
  }
  return bytes;
}

// Returns half of the gathered bytes: each row is sent once per receiver, but the caller counts
// twice the payload, as for an all-reduce.
int64_t SufficientFactors::payload_bytes(int bucket, Tensor) const {
  const Layer& at = *layers_[static_cast<size_t>(bucket)];
  return at.rows * at.own.width() * static_cast<int64_t>(size_of(at.own.dtype())) / 2;
}

}  // namespace tutti::training
