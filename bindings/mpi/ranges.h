// For which sizes Tutti takes a call, where TUTTI_MPI_SMALLEST does not say: those in which it was
// measured to be no slower than the MPI library. A file for each library has its numbers.
#pragma once

#include <array>
#include <cstdint>

#include "bindings/mpi/report.h"

namespace tutti::mpi {

// Of what the call is decided by: bytes of one block, or of the buffer where there are no blocks; 0
// for a barrier; bytes of a window's largest part. Calls of which ranks know their own blocks only
// are of kUnknown bytes.
inline constexpr uint64_t kUnknown = UINT64_MAX;

struct Range {
  uint64_t from;
  uint64_t to;  // included
  bool has(uint64_t bytes) const { return bytes >= from && bytes <= to; }
};
inline constexpr Range kAlways = {0, kUnknown};
inline constexpr Range kNever = {1, 0};
constexpr Range from(uint64_t bytes) { return {bytes, kUnknown}; }
constexpr Range up_to(uint64_t bytes) { return {0, bytes}; }

// By Call, for each Form.
using Ranges = std::array<Range, kRangedCalls>;
using RangesOfForms = std::array<Ranges, kForms>;
extern const RangesOfForms kMeasured;
// Of reductions that Tutti has no kernel for, beside the call's: by a function of operators.cc's,
// and by the program's.
extern const Range kMeasuredFunctions;
extern const Range kMeasuredPrograms;

}  // namespace tutti::mpi
