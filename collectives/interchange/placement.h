// Maps the chunks of one MSCCL gpu to chunks of a program.
//
// A gpu of the file has cells: its input, output and scratch chunks (input and output are the same
// cells if the file works in place), and one cell for each value inside a fused step. A program
// never writes its input, and the chunks that it stores in one location have one size class. So a
// cell is read from the program's input until its first write. After that it is in the output. If
// the output has no such chunk, or has it in another size class, the cell is in scratch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collectives/interchange/msccl.h"
#include "collectives/program/program.h"

namespace tutti {

// A program's chunk and the size class of its content.
struct PlacedChunk {
  Space space = Space::input;
  int32_t chunk = 0;
  int32_t size_class = 0;
  bool operator==(const PlacedChunk&) const = default;
};

class Placement {
 public:
  Placement(const MscclAlgorithm& algorithm, int32_t gpu);

  // Additional buffer, besides MSCCL's i, o and s, for values inside fused steps (the sum that rrs
  // sends on). Each value has the next free index.
  static constexpr char kPassing = 'p';

  // Returns the locations of the chunks' contents. Throws Refusal that names the first empty chunk.
  std::vector<PlacedChunk> read(const MscclRange& range);
  // Returns the chunks to which contents of these size classes must be written. If an in-place call
  // would overwrite inputs that are still to be read, it first appends a step that copies them to
  // scratch. `kept`: the sources of a copy, null for other steps; a chunk that is copied onto
  // itself is not lost.
  std::vector<PlacedChunk> write(const MscclRange& range, const std::vector<int32_t>& size_classes,
                                 const std::vector<PlacedChunk>* kept, std::vector<Step>& steps);
  // Announces a future read; read() consumes the announcement.
  void expect_read(const MscclRange& range);
  // Returns true if write() would have to save an input. `reading`: the chunks that the step reads.
  bool would_lose_input(const MscclRange& written, const MscclRange& reading) const;
  // Appends copies of results that are not in the output yet. Throws Refusal if a result is
  // missing.
  void finish(std::vector<Step>& steps);

  int32_t scratch_chunks() const { return scratch_chunks_; }

  struct Refusal {
    std::string problem;
  };

 private:
  struct Cell {
    bool is_filled = false;
    PlacedChunk at;
    int32_t reads_to_come = 0;
  };
  using Key = std::pair<char, int32_t>;

  Key key(char buffer, int32_t index) const;
  // Returns the location of a chunk. It is equal for chunks that alias each other in an in-place
  // call.
  int32_t place_of(Space space, int32_t chunk) const;
  // Returns the output chunk that a cell represents, or -1.
  int32_t output_of(const Key& key) const;
  PlacedChunk home(const Key& key, int32_t size_class);
  PlacedChunk new_scratch(int32_t size_class);
  // Returns the input cell that aliases this output chunk in an in-place call. Returns null if
  // there is none, or if its content is no longer in the input.
  Cell* input_under(int32_t output_chunk);
  const Cell* input_under(int32_t output_chunk) const;

  Collective collective_;
  Shape shape_;
  Program program_;  // used for its chunk counts only
  bool in_place_;
  bool has_output_;
  int32_t classes_;
  std::map<Key, Cell> cells_;
  std::map<std::pair<Key, int32_t>, PlacedChunk> scratch_;  // by cell and size class
  std::vector<int32_t> used_;  // number of scratch chunks in each class
  int32_t scratch_chunks_ = 0;
};

// Merges adjacent chunks.
RangeList to_ranges(const std::vector<PlacedChunk>& chunks);
std::vector<int32_t> size_classes_of(const std::vector<PlacedChunk>& chunks);

}  // namespace tutti
