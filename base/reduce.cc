#include "base/reduce.h"

#include "base/error.h"
#include "base/kernels/kernels.h"
#include "base/settings.h"
#include "base/text.h"

namespace tutti {

namespace {

InstructionSet best_available() {
  InstructionSet best = InstructionSet::baseline;
  for (InstructionSet set : kAllInstructionSets) {
    if (is_available(set)) best = set;
  }
  return best;
}

InstructionSet from_settings() {
  const std::string wanted = settings().get_string("TUTTI_CPU");
  for (InstructionSet set : kAllInstructionSets) {
    if (name(set) != wanted) continue;
    if (is_available(set)) return set;
    throw Error(ErrorCode::unsupported,
                cat("TUTTI_CPU=", wanted, ": this processor has no ", wanted),
                {.remedy = cat("unset TUTTI_CPU, or use ", name(best_available()))});
  }
  return best_available();
}

}  // namespace

std::string_view name(InstructionSet set) {
  switch (set) {
    case InstructionSet::baseline:
      return "baseline";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::avx512:
      return "avx512";
  }
  return "?";
}

bool is_available(InstructionSet set) {
  switch (set) {
    case InstructionSet::baseline:
      return true;
#if defined(__x86_64__)
    case InstructionSet::avx2:  // all processors with AVX2 have F16C
      return __builtin_cpu_supports("avx2") != 0;
    case InstructionSet::avx512:
      return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
             __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
#endif
    default:
      return false;
  }
}

InstructionSet selected_instruction_set() {
  static const InstructionSet selected = from_settings();
  return selected;
}

ReduceKernel reduce_kernel(DType type, ReduceOp op, InstructionSet set) {
  ReduceKernel kernel = nullptr;
  switch (set) {
    case InstructionSet::baseline:
      kernel = kernels::baseline::find_reduce(type, op);
      break;
#if defined(__x86_64__)
    case InstructionSet::avx2:
      kernel = kernels::avx2::find_reduce(type, op);
      break;
    case InstructionSet::avx512:
      kernel = kernels::avx512::find_reduce(type, op);
      break;
#endif
    default:
      break;
  }
  if (kernel == nullptr) {
    throw Error(ErrorCode::invalid_argument, cat(name(op), " does not exist for ", name(type)),
                {.remedy = "bitwise operations need an integer type"});
  }
  return kernel;
}

ReduceKernel reduce_kernel(DType type, ReduceOp op) {
  return reduce_kernel(type, op, selected_instruction_set());
}

void divide_by(void* data, size_t count, DType type, int ranks, InstructionSet set) {
  switch (set) {
    case InstructionSet::baseline:
      return kernels::baseline::find_divide(type)(data, count, ranks);
#if defined(__x86_64__)
    case InstructionSet::avx2:
      return kernels::avx2::find_divide(type)(data, count, ranks);
    case InstructionSet::avx512:
      return kernels::avx512::find_divide(type)(data, count, ranks);
#endif
    default:
      break;
  }
}

void divide_by(void* data, size_t count, DType type, int ranks) {
  divide_by(data, count, type, ranks, selected_instruction_set());
}

}  // namespace tutti
