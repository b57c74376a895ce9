// Exchanges parts of matrices that are sharded over the ranks of a communicator.
#pragma once

#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/layout.h"
#include "training/optimizers/matrix_exchange.h"

namespace tutti::training {

class RankMatrices : public MatrixExchange {
 public:
  // Creates the exchange. Rank r of `owners` owns shard r of `layout`. The layout and the
  // specifications must outlive the object.
  RankMatrices(Communicator owners, const Layout& layout, const std::vector<ParameterSpec>& specs)
      : owners_(std::move(owners)), layout_(layout), specs_(specs) {}

  int owners() const override { return owners_.size(); }
  int self() const override { return owners_.rank(); }
  std::vector<Piece> pieces(int owner) const override {
    require_one_group(layout_);
    return layout_.pieces({owner});
  }
  const ParameterSpec& spec(int parameter) const override {
    return specs_[static_cast<size_t>(parameter)];
  }
  void exchange(std::span<const float> sent, std::span<const int64_t> sent_counts,
                std::span<float> received, std::span<const int64_t> received_counts) override {
    owners_.all_to_allv({sent.data(), sent.size(), DType::f32}, blocks(sent_counts),
                        {received.data(), received.size(), DType::f32}, blocks(received_counts));
  }

 private:
  static Blocks blocks(std::span<const int64_t> counts) {
    return {.counts = {counts.begin(), counts.end()}, .displacements = {}};
  }

  Communicator owners_;
  const Layout& layout_;
  const std::vector<ParameterSpec>& specs_;
};

}  // namespace tutti::training
