// Describes one call on all ranks as a value: the number of elements of each rank, the inputs of
// which each output consists, and therefore the expected result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/reduce_op.h"
#include "collectives/program/program.h"
#include "collectives/request.h"

namespace tutti::bench {

// The block sizes of a call. Blocks are contiguous, in rank order.
struct Layout {
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  int root = 0;        // root of the collectives for which has_root() is true
  uint64_t count = 0;  // number of elements of one block, or of a buffer without blocks
  // Number of elements of each rank's block, for v-variants, which do not use `count`. For
  // all_to_allv, index s * ranks + r is the number for the block from rank s to rank r.
  std::vector<uint64_t> uneven;

  uint64_t inputs(int rank) const;  // number of elements; 0 if there is no buffer
  uint64_t outputs(int rank) const;
  // Returns the number of elements of the larger buffer, over all blocks (all_to_all: of rank 0's
  // input).
  uint64_t total() const;

  uint64_t block(int from, int to) const;
  std::vector<uint64_t> input_counts(int rank) const;  // number of elements per block
  std::vector<uint64_t> output_counts(int rank) const;
};

// Returns the total number of elements in the blocks of ranks 0 to rank - 1.
uint64_t sum_before(const std::vector<uint64_t>& counts, int rank);

// Returns the block sizes with which `bench` times v-variants: from 0 to twice `count`, `count` on
// average.
std::vector<uint64_t> uneven_blocks(Collective collective, int ranks, uint64_t count);

// `count` consecutive elements of an output. If `combined` is 0, they equal elements `first`,
// first + 1, ... of rank `rank`'s input. Otherwise they are the reduction of these elements of the
// inputs of ranks 0 to combined - 1.
struct Part {
  int rank = 0;
  int combined = 0;
  uint64_t first = 0;
  uint64_t count = 0;
};
// Returns the parts of a rank's output; empty if nothing is written (exscan, rank 0).
std::vector<Part> output_parts(const Layout& layout, int rank);

// Kind of the data in the buffers.
enum class Data {
  exact,     // exact in any order of summation: bench/pattern.h
  rounding,  // sensitive to the order of summation: bench/rounding.h
};
// Fills the buffer with the elements of the part.
void fill_part(Data data, DType dtype, ReduceOp op, int ranks, const Part& part, void* to);
void fill_input(Data data, DType dtype, ReduceOp op, const Layout& layout, int rank, void* input);

// Returns a rank's expected output; for rounding data, the result of a canonical algorithm. Bytes
// of the output that are not written are kUntouched.
inline constexpr std::byte kUntouched{0xa5};
std::vector<std::byte> expected_output(Data data, DType dtype, ReduceOp op, const Layout& layout,
                                       int rank);

// Returns the operator with the argument that it needs on this rank: the factor of premul_sum, or
// the function of ReduceOp::user (compose() in bench/pattern.h).
Reduction reduction(Data data, ReduceOp op, int rank);

// Returns the calls that a rank makes. This is usually one call. For send_recv, it is a group of
// two (send to the next rank, receive from the previous rank), or no call if there is only one
// rank.
std::vector<Request> requests(const Layout& layout, int rank, ConstBuffer input, Buffer output,
                              const Reduction& op);

}  // namespace tutti::bench
