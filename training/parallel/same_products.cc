#include "training/parallel/same_products.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/reduce.h"
#include "base/text.h"
#include "training/core/group.h"
#include "training/core/random.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/gemm.h"

namespace tutti::training {
namespace {

// Host memory of its own.
class Matrix {
 public:
  Matrix(DType type, int64_t rows, int64_t cols)
      : memory_(static_cast<size_t>(rows * cols) * size_of(type)),
        tensor_(tensor_at(static_cast<void*>(memory_.data()), type, rows, cols)) {}
  Tensor tensor() const { return tensor_; }
  std::span<const uint8_t> bytes() const { return memory_; }

 private:
  std::vector<uint8_t> memory_;
  Tensor tensor_;
};

Matrix random_matrix(DType type, int64_t rows, int64_t cols, uint64_t stream) {
  Matrix values(DType::f32, rows, cols);
  const std::span<float> all = values.tensor().values<float>();
  for (size_t i = 0; i < all.size(); ++i) all[i] = scale_symmetric(random_bits(1, stream, i), 1.0f);
  if (type == DType::f32) return values;
  Matrix rounded(type, rows, cols);
  convert(values.tensor(), rounded.tensor());
  return rounded;
}

// What tells ranks apart: the instruction set of our own loops, and bits of products.
using Ways = std::array<uint64_t, 2>;

Ways ways_of(DType type) {
  constexpr int64_t kOutputs = 144, kInputs = 208, kRows = 1100;
  const Matrix x = random_matrix(type, kRows, kInputs, 1),
               dy = random_matrix(type, kRows, kOutputs, 2);
  const Matrix product(type == DType::f64 ? type : DType::f32, kOutputs, kInputs);
  gemm(dy.tensor(), Transpose::yes, x.tensor(), Transpose::no, product.tensor());
  return {static_cast<uint64_t>(selected_instruction_set()), fnv(product.bytes())};
}

}  // namespace

void check_same_products(Communicator& ranks, DType type, const std::string& work,
                         const std::string& remedy) {
  if (ranks.size() == 1) return;
  const Ways own = ways_of(type);
  std::vector<Ways> all(static_cast<size_t>(ranks.size()));
  ranks.all_gather({own.data(), own.size(), DType::u64},
                   {all.data(), all.size() * own.size(), DType::u64});
  const auto other = std::ranges::find_if(all, [&](const Ways& way) { return way != all.front(); });
  if (other == all.end()) return;
  const auto set = [](const Ways& way) { return name(static_cast<InstructionSet>(way[0])); };
  throw_on_all(ranks,
               Error(ErrorCode::unsupported, cat("ranks with different processors cannot ", work),
                     {.where = cat(ranks.describe(0), " computes with ", set(all.front()), ", ",
                                   ranks.describe(static_cast<int>(other - all.begin())), " with ",
                                   set(*other), ", and products have other bits"),
                      .cause = "each computes by itself what all are to have in the same bits",
                      .remedy = cat(remedy,
                                    ", or give all ranks one TUTTI_CPU and one "
                                    "ONEDNN_MAX_CPU_ISA")}));
}

}  // namespace tutti::training
