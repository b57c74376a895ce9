#include "training/kernels/cpu/loops.h"

#include "base/error.h"
#include "base/reduce.h"
#include "base/text.h"

namespace tutti::training::kernels {
namespace {

const Loops* selected_loops() {
  switch (selected_instruction_set()) {
#if defined(__x86_64__)
    case InstructionSet::avx2:
      return avx2::kLoops;
    case InstructionSet::avx512:
      return avx512::kLoops;
#endif
    default:
      return baseline::kLoops;
  }
}

}  // namespace

const Loops& loops(DType type) {
  static const Loops* const selected = selected_loops();
  const int index = static_cast<int>(type) - static_cast<int>(DType::f16);
  if (index < 0 || index >= kFloatTypes) {
    throw Error(ErrorCode::unsupported, cat("models cannot compute in ", name(type)),
                {.remedy = "use f32, bf16, f16 or f64"});
  }
  return selected[index];
}

}  // namespace tutti::training::kernels
