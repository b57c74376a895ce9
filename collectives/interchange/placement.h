// Where the chunks of one MSCCL gpu lie among the chunks of a program.
//
// A file's gpu has cells: its input, output and scratch chunks, where input and output are the same
// cells if the file works in place, and one cell for each value on its way through a fused step. A
// program never writes its input, and keeps chunks of one size class only in one place. So a cell
// is read from the program's input until it is first written, and from then on from the output;
// from scratch where there is no such output, or none of the content's size class.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collectives/interchange/msccl.h"
#include "collectives/program/program.h"

namespace tutti {

// A program's chunk and the size class of what it holds.
struct PlacedChunk {
  Space space = Space::input;
  int32_t chunk = 0;
  int32_t size_class = 0;
  bool operator==(const PlacedChunk&) const = default;
};

class Placement {
 public:
  Placement(const MscclAlgorithm& algorithm, int32_t gpu);

  // The letter of values on their way through fused steps; numbered freely.
  static constexpr char kPassing = 'p';

  // What the chunks hold. Refusal names the first one that holds nothing.
  std::vector<PlacedChunk> read(const MscclRange& range);
  // Contents of these size classes are written: to which chunks? Inputs that are still to be read
  // and that an in-place call would lose are copied to scratch first, by a step that is appended.
  // `kept`: what the step copies, if it does; a chunk that stays where it is loses nothing.
  std::vector<PlacedChunk> write(const MscclRange& range, const std::vector<int32_t>& size_classes,
                                 const std::vector<PlacedChunk>* kept, std::vector<Step>& steps);
  // For each read that is to come: add one; read() takes it off.
  void expect_read(const MscclRange& range);
  // Whether write() would have to save an input. `reading`: what the step reads itself.
  bool would_lose_input(const MscclRange& written, const MscclRange& reading) const;
  // Appends the copies of results that are not in the output yet. Refusal: there is none.
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
  // The number of a chunk that in-place calls lay over each other.
  int32_t place_of(Space space, int32_t chunk) const;
  // The output chunk that a cell stands for, or -1.
  int32_t output_of(const Key& key) const;
  PlacedChunk home(const Key& key, int32_t size_class);
  PlacedChunk new_scratch(int32_t size_class);
  // The unread input that lies where this output chunk does in place, or null.
  Cell* input_under(int32_t output_chunk);
  const Cell* input_under(int32_t output_chunk) const;

  Collective collective_;
  Shape shape_;
  Program program_;  // chunk counts only
  bool in_place_;
  bool has_output_;
  int32_t classes_;
  std::map<Key, Cell> cells_;
  std::map<std::pair<Key, int32_t>, PlacedChunk> scratch_;  // by cell and size class
  std::vector<int32_t> used_;                               // scratch chunks of each class
  int32_t scratch_chunks_ = 0;
};

// Neighbours together.
RangeList to_ranges(const std::vector<PlacedChunk>& chunks);
std::vector<int32_t> size_classes_of(const std::vector<PlacedChunk>& chunks);

}  // namespace tutti
