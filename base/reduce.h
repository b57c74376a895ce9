// Reduction on the processor: dst[i] = a[i] op b[i].
//
// Every kernel exists in several instruction sets with the same results, bit for bit. The only
// exception: if a sum or product in float or double has two NaN operands, either one's payload may
// be kept. The best available set is used; the setting TUTTI_CPU chooses another.
//
//   f16, bf16, f8*  computed in float, rounded to nearest even when stored as an element
//                   (base/half.h); an accumulator is the float itself, unrounded
//   floats          as IEEE 754: subnormals are kept, infinity - infinity and 0 * infinity are NaN,
//                   -0 + 0 is 0, -0 + -0 is -0, NaN with anything is NaN; overflow gives infinity.
//                   f8e4m3 has no infinity: overflow, or rounding an infinite float, gives NaN
//   integers        wrap around
//   min, max        NaN if either operand is NaN; of two equal operands (-0 and 0) the result is b
//   minloc, maxloc  as min and max, with -0 equal to 0; of equal values, or two NaNs, the pair with
//                   the lower index is taken
//   avg             adds; the caller that holds the complete sum applies mean()
//   premul_sum      adds; the caller applies scale() to each input first
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace tutti {

// States which of the three arrays hold accumulators (accumulator_of) instead of elements. The
// choice has no effect for types that are their own accumulators.
struct Formats {
  bool dst = false;
  bool a = false;
  bool b = false;
};

// Computes dst[i] = a[i] op b[i] for `count` elements. Pointers need no alignment. dst may equal a
// or b if both have the same format; otherwise it must not overlap them. Thread-safe; never throws.
using ReduceKernel = void (*)(void* dst, const void* a, const void* b, size_t count,
                              Formats formats);

// Returns the kernel of the selected instruction set. Throws Error(invalid_argument) if
// !supports(op, type), and for ReduceOp::user, which is the caller's own function.
ReduceKernel reduce_kernel(DType type, ReduceOp op);

// Computes dst[i] = (a[i] + b[i]) / ranks, or a[i] / ranks if b is null. `a` and `b` are sums in
// the formats that `formats` states; `dst` has elements. Pointers are as for ReduceKernel; `ranks`
// is at least 1, and at least 2 with `b`. Pairs are not supported.
//
// 16- and 8-bit floats are added and divided in float and rounded once. If a and b are finite, so
// is the mean, even if a + b overflows: then half of the sum is divided. (Sums of three and more
// ranks may overflow earlier.) Integer sums wrap around, and quotients are truncated towards zero.
void mean(void* dst, const void* a, const void* b, size_t count, DType type, int ranks,
          Formats formats = {});

// Converts between elements and their accumulators, for types whose accumulator differs
// (accumulator_of); rounds as in base/half.h. Pointers need no alignment.
void widen(void* accumulators, const void* elements, size_t count, DType type);
void narrow(void* elements, const void* accumulators, size_t count, DType type);

// Computes dst[i] = factor * src[i], rounded once; dst may be src. f64 is multiplied in double, the
// other floats in float by the factor rounded to float; integers wrap around. Pointers need no
// alignment. The factor must pass check_factor().
void scale(void* dst, const void* src, size_t count, DType type, double factor);
// Throws Error(invalid_argument) if scale() cannot use the factor: an integer type needs an
// integral factor that it can hold, and pairs accept no factor.
void check_factor(DType type, double factor);

// --- the instruction sets, for tests, benchmarks and `tutti info` ---

enum class InstructionSet { baseline = 0, avx2 = 1, avx512 = 2 };
inline constexpr std::array kAllInstructionSets = {InstructionSet::baseline, InstructionSet::avx2,
                                                   InstructionSet::avx512};

std::string_view name(InstructionSet set);
// Returns true if the processor and the operating system support the set.
bool is_available(InstructionSet set);
// Returns the set that reduce_kernel() uses. Throws Error(unsupported) if TUTTI_CPU names one that
// is not available.
InstructionSet selected_instruction_set();

// Returns the kernel of one instruction set, which must be available.
ReduceKernel reduce_kernel(DType type, ReduceOp op, InstructionSet set);
void mean(void* dst, const void* a, const void* b, size_t count, DType type, int ranks,
          Formats formats, InstructionSet set);
void widen(void* accumulators, const void* elements, size_t count, DType type, InstructionSet set);
void narrow(void* elements, const void* accumulators, size_t count, DType type, InstructionSet set);
void scale(void* dst, const void* src, size_t count, DType type, double factor, InstructionSet set);

}  // namespace tutti
