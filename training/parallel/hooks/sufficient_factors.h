// Sends weight gradients of dense layers as their factors (parallel/factor_layers.h): ranks gather
// the rows of all ranks, and each rank multiplies all rows, in the order of ranks.
//
//   backward    | keeps the rows of each micro-batch (modules/factor_rows.h)
//   start()     | ranks exchange their numbers of rows, which may differ or be 0
//   proceed()   | ranks gather the rows
//   finish()    | each rank computes dY^T X of all rows
//
// All ranks compute the same product, with the same bits if their processors have the same
// instruction set.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "training/modules/factor_rows.h"
#include "training/parallel/data_parallel.h"

namespace tutti::training {

class SufficientFactors : public CommunicationHook {
 public:
  // Creates the hook. Each of `parameters` has its own bucket in `layout`; activations are of type
  // `dtype`. `table` must outlive the hook: its parameters refer to the hook's rows.
  SufficientFactors(ParameterTable& table, const Layout& layout, const std::vector<int>& parameters,
                    DType dtype, Communicator ranks);
  ~SufficientFactors() override;
  SufficientFactors(const SufficientFactors&) = delete;
  SufficientFactors& operator=(const SufficientFactors&) = delete;

  bool takes(int bucket) const override { return layers_[static_cast<size_t>(bucket)] != nullptr; }
  int last_stage() const override { return 1; }
  void proceed() override;
  void start(Communicator& communicator, int bucket, Tensor gradients) override;
  void finish(int bucket, Tensor gradients) override;
  bool test(int bucket) override;
  std::chrono::nanoseconds computed() const override { return computed_; }
  int64_t bytes() const override;
  int64_t payload_bytes(int bucket, Tensor gradients) const override;

 private:
  struct Layer {
    int parameter;
    int64_t outputs;
    int64_t inputs;
    FactorRows own;
    Communicator ranks = {};
    int64_t own_rows = 0;              // number of this rank's rows, which it sends to all
    std::vector<int64_t> counts = {};  // number of rows of each rank
    Work counting = {};
    bool gathers = false;  // true once the gather of the rows has started
    Work gather = {};
    int64_t rows = 0;  // number of rows of all ranks
    Memory<std::byte> memory = nullptr;
    int64_t memory_bytes = 0;
  };
  Layer& layer(int bucket) { return *layers_.at(static_cast<size_t>(bucket)); }
  static void gather(Layer& layer);

  ParameterTable& table_;
  // by bucket; null: the hook does not take the bucket
  std::vector<std::unique_ptr<Layer>> layers_;
  // the layer whose numbers of rows are being exchanged; its rows are gathered next
  Layer* counted_ = nullptr;
  std::chrono::nanoseconds computed_{0};
};

}  // namespace tutti::training
