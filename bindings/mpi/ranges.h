// The sizes for which Tutti handles a call, unless TUTTI_MPI_SMALLEST overrides them. At these
// sizes, Tutti was measured to be no slower than the MPI library. The ranges for each MPI library
// are in a file of their own, such as ranges_mpich.cc.
#pragma once

#include <array>
#include <cstdint>

#include "bindings/mpi/report.h"

namespace tutti::mpi {

// The decision about a call depends on its size in bytes: the size of one block, or of the buffer
// if there are no blocks; 0 for a barrier; the size of the largest part for a window. The size is
// kUnknown if ranks know only their own blocks.
inline constexpr uint64_t kUnknown = UINT64_MAX;

struct Range {
  uint64_t from;
  uint64_t to;  // inclusive, in bytes
  bool has(uint64_t bytes) const { return bytes >= from && bytes <= to; }
};
inline constexpr Range kAlways = {0, kUnknown};
inline constexpr Range kNever = {1, 0};
constexpr Range from(uint64_t bytes) { return {bytes, kUnknown}; }
constexpr Range up_to(uint64_t bytes) { return {0, bytes}; }

// Ranges is indexed by Call, and RangesOfForms by Form.
using Ranges = std::array<Range, kRangedCalls>;
using RangesOfForms = std::array<Ranges, kForms>;
extern const RangesOfForms kMeasured;
// Additional ranges for reductions without a Tutti kernel. kMeasuredFunctions applies if the
// reduction uses a function of operators.cc, kMeasuredPrograms if the program supplied the
// function.
extern const Range kMeasuredFunctions;
extern const Range kMeasuredPrograms;

}  // namespace tutti::mpi
