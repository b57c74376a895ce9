// One call on all ranks, as a value: who has how many elements, which inputs each output consists
// of, and so what must come back.
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

// Blocks lie one behind the other.
struct Layout {
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  int root = 0;        // where has_root()
  uint64_t count = 0;  // elements of one block; of the buffer, where there are no blocks
  // A v-variant: the elements of each rank's block; all_to_all: of the block from s to r at
  // s * ranks + r. `count` is then not used.
  std::vector<uint64_t> uneven;

  uint64_t inputs(int rank) const;  // elements; 0 where there is no buffer
  uint64_t outputs(int rank) const;
  // Of the larger buffer, all blocks together (all_to_all: of rank 0's input).
  uint64_t total() const;

  uint64_t block(int from, int to) const;
  std::vector<uint64_t> input_counts(int rank) const;  // of each block
  std::vector<uint64_t> output_counts(int rank) const;
};

// The elements of the blocks before that of `rank`.
uint64_t sum_before(const std::vector<uint64_t>& counts, int rank);

// What `bench` times as a v-variant: blocks from empty to twice `count`, `count` on average.
std::vector<uint64_t> uneven_blocks(Collective collective, int ranks, uint64_t count);

// The next `count` elements of an output: from element `first` on of rank `rank`'s input; of
// `combined` > 0 ranks' inputs, those of ranks 0 to combined - 1, combined.
struct Part {
  int rank = 0;
  int combined = 0;
  uint64_t first = 0;
  uint64_t count = 0;
};
// What a rank's output consists of. Empty: nothing is written (exscan, rank 0).
std::vector<Part> output_parts(const Layout& layout, int rank);

// The data in the buffers.
enum class Data {
  exact,     // bench/pattern.h
  rounding,  // bench/rounding.h
};
// As many elements as the part has.
void fill_part(Data data, DType dtype, ReduceOp op, int ranks, const Part& part, void* to);
void fill_input(Data data, DType dtype, ReduceOp op, const Layout& layout, int rank, void* input);

// What the whole output of a rank must be when all inputs are as above; of rounding data, as a
// canonical algorithm computes it. Where nothing is written its bytes are kUntouched.
inline constexpr std::byte kUntouched{0xa5};
std::vector<std::byte> expected_output(Data data, DType dtype, ReduceOp op, const Layout& layout,
                                       int rank);

// The operator, with what belongs to it on this rank: its factor, or compose() (bench/pattern.h).
Reduction reduction(Data data, ReduceOp op, int rank);

// The calls that a rank makes: one; for send_recv a pair in a group (to the next rank, and from the
// one before), and none where a rank is alone.
std::vector<Request> requests(const Layout& layout, int rank, ConstBuffer input, Buffer output,
                              const Reduction& op);

}  // namespace tutti::bench
