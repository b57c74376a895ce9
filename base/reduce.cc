#include "base/reduce.h"

#include <cmath>

#include "base/block_kernels.h"
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

namespace {

const kernels::Kernels& kernels_of(InstructionSet set) {
  switch (set) {
#if defined(__x86_64__)
    case InstructionSet::avx2:
      return kernels::avx2::kKernels;
    case InstructionSet::avx512:
      return kernels::avx512::kKernels;
#endif
    default:
      return kernels::baseline::kKernels;
  }
}

// Returns the kernels of the instruction set, which is selected once per process.
const kernels::Kernels& selected_kernels() {
  static const kernels::Kernels& selected = kernels_of(selected_instruction_set());
  return selected;
}

ReduceKernel reduce_kernel(DType type, ReduceOp op, const kernels::Kernels& kernels) {
  const ReduceKernel kernel =
      is_block(type) ? block_kernels::reduce(type, op) : kernels.reduce(type, op);
  if (kernel != nullptr) return kernel;
  if (op == ReduceOp::user) {
    throw Error(ErrorCode::invalid_argument, "a user-defined operator has no built-in kernel",
                {.cause = "the operator is a function that the caller supplied",
                 .remedy = "call that function"});
  }
  throw Error(ErrorCode::invalid_argument, cat(name(op), " is not defined for ", name(type)),
              {.cause = "bitwise operators need integers, minloc and maxloc need pairs"});
}

}  // namespace

ReduceKernel reduce_kernel(DType type, ReduceOp op, InstructionSet set) {
  return reduce_kernel(type, op, kernels_of(set));
}

ReduceKernel reduce_kernel(DType type, ReduceOp op) {
  return reduce_kernel(type, op, selected_kernels());
}

// Means and multiples of blocks use the same code in all instruction sets.

void mean(void* dst, const void* a, const void* b, size_t count, DType type, int ranks,
          Formats formats, InstructionSet set) {
  if (is_block(type)) return block_kernels::mean(dst, a, b, count, type, ranks, formats);
  kernels_of(set).mean(type)(dst, a, b, count, ranks, formats);
}
void mean(void* dst, const void* a, const void* b, size_t count, DType type, int ranks,
          Formats formats) {
  if (is_block(type)) return block_kernels::mean(dst, a, b, count, type, ranks, formats);
  selected_kernels().mean(type)(dst, a, b, count, ranks, formats);
}

void widen(void* accumulators, const void* elements, size_t count, DType type, InstructionSet set) {
  kernels_of(set).widen(type)(accumulators, elements, count);
}
void widen(void* accumulators, const void* elements, size_t count, DType type) {
  selected_kernels().widen(type)(accumulators, elements, count);
}

void narrow(void* elements, const void* accumulators, size_t count, DType type,
            InstructionSet set) {
  kernels_of(set).narrow(type)(elements, accumulators, count);
}
void narrow(void* elements, const void* accumulators, size_t count, DType type) {
  selected_kernels().narrow(type)(elements, accumulators, count);
}

void scale(void* dst, const void* src, size_t count, DType type, double factor,
           InstructionSet set) {
  if (is_block(type)) return block_kernels::scale(dst, src, count, type, factor);
  kernels_of(set).scale(type)(dst, src, count, factor);
}
void scale(void* dst, const void* src, size_t count, DType type, double factor) {
  if (is_block(type)) return block_kernels::scale(dst, src, count, type, factor);
  selected_kernels().scale(type)(dst, src, count, factor);
}

void check_factor(DType type, double factor) {
  if (is_float(type)) return;
  if (is_pair(type)) {
    throw Error(ErrorCode::invalid_argument, cat("premul_sum is not defined for ", name(type)),
                {.cause = "pairs of a value and an index cannot be added"});
  }
  const int bits = static_cast<int>(8 * size_of(type));
  const bool is_signed = type <= DType::i64;
  const double limit = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  const double least = is_signed ? -limit : 0;
  if (factor == std::trunc(factor) && factor >= least && factor < limit) return;
  throw Error(
      ErrorCode::invalid_argument,
      cat("premul_sum: the factor ", factor, " is not an integer in the range of ", name(type)),
      {.cause = "integers are multiplied by an integer factor",
       .remedy = "use an integer in the type's range, or a floating-point type"});
}

}  // namespace tutti
