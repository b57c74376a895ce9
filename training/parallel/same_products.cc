#include "training/parallel/same_products.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/reduce.h"
#include "base/text.h"
#include "training/core/arena.h"
#include "training/core/group.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/filled.h"
#include "training/kernels/gemm.h"

namespace tutti::training {
namespace {

// A summary of a rank's arithmetic: the instruction set of our own loops, and a hash of a
// product's bits.
using Ways = std::array<uint64_t, 2>;

Ways ways_of(DType type) {
  constexpr int64_t kOutputs = 144, kInputs = 208, kRows = 1100;
  Arena arena(size_t{16} << 20);
  const Tensor x = random_matrix(arena, type, kRows, kInputs, 1);
  const Tensor dy = random_matrix(arena, type, kRows, kOutputs, 2);
  const Tensor product = arena.take(value_type(type), kOutputs, kInputs);
  gemm(dy, Transpose::yes, x, Transpose::no, product);
  return {static_cast<uint64_t>(selected_instruction_set()),
          fnv({reinterpret_cast<const uint8_t*>(product.data), product.bytes()})};
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
  throw_on_all(
      ranks,
      Error(ErrorCode::unsupported, cat("ranks with different processors cannot ", work),
            {.where = cat(ranks.describe(0), " computes with ", set(all.front()), ", ",
                          ranks.describe(static_cast<int>(other - all.begin())), " with ",
                          set(*other), ", and their products differ in bits"),
             .cause = "each rank computes redundantly what must be bitwise equal on all ranks",
             .remedy =
                 cat(remedy, ", or set the same TUTTI_CPU and ONEDNN_MAX_CPU_ISA on all ranks")}));
}

}  // namespace tutti::training
