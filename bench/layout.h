// One call on all ranks, as a value: the number of elements of each rank, the inputs that each
// output consists of, and so the expected result.
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
  int root = 0;        // where has_root()
  uint64_t count = 0;  // elements of one block; of the buffer, where there are no blocks
  // v-variants: elements of each rank's block; all_to_allv: elements of the block from s to r, at
  // index s * ranks + r. `count` is then unused.
  std::vector<uint64_t> uneven;

  uint64_t inputs(int rank) const;  // elements; 0 where there is no buffer
  uint64_t outputs(int rank) const;
  // Number of elements of the larger buffer, over all blocks (all_to_all: of rank 0's input).
  uint64_t total() const;

  uint64_t block(int from, int to) const;
  std::vector<uint64_t> input_counts(int rank) const;  // per block
  std::vector<uint64_t> output_counts(int rank) const;
};

// Number of elements of the blocks before that of `rank`.
uint64_t sum_before(const std::vector<uint64_t>& counts, int rank);

// The block sizes with which `bench` times v-variants: from 0 to twice `count`, `count` on average.
std::vector<uint64_t> uneven_blocks(Collective collective, int ranks, uint64_t count);

// `count` consecutive elements of an output: those of rank `rank`'s input from element `first` on,
// or, if `combined` > 0, the reduction of the inputs of ranks 0 to combined - 1.
struct Part {
  int rank = 0;
  int combined = 0;
  uint64_t first = 0;
  uint64_t count = 0;
};
// Returns the parts of a rank's output; empty if nothing is written (exscan, rank 0).
std::vector<Part> output_parts(const Layout& layout, int rank);

// The data in the buffers.
enum class Data {
  exact,     // bench/pattern.h
  rounding,  // bench/rounding.h
};
// Fills the buffer with the elements of the part.
void fill_part(Data data, DType dtype, ReduceOp op, int ranks, const Part& part, void* to);
void fill_input(Data data, DType dtype, ReduceOp op, const Layout& layout, int rank, void* input);

// Returns the expected output of a rank for the inputs above; for rounding data, the result of a
// canonical algorithm. Bytes that are not written are kUntouched.
inline constexpr std::byte kUntouched{0xa5};
std::vector<std::byte> expected_output(Data data, DType dtype, ReduceOp op, const Layout& layout,
                                       int rank);

// The operator with its argument on this rank: the factor, or compose() (bench/pattern.h).
Reduction reduction(Data data, ReduceOp op, int rank);

// The calls that a rank makes: one; for send_recv a group of two (send to the next rank, receive
// from the previous one); none for send_recv with one rank.
std::vector<Request> requests(const Layout& layout, int rank, ConstBuffer input, Buffer output,
                              const Reduction& op);

}  // namespace tutti::bench
