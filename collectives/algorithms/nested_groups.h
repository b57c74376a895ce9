// The groups of a layout as stages. Stage 0 divides all ranks into the outermost groups (hosts),
// each further stage divides those groups, and the last stage divides an innermost group into
// ranks.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/program/program.h"
#include "topology/layout.h"

namespace tutti::algorithms {

class NestedGroups {
 public:
  struct Group {
    int32_t first;
    int32_t size;

    int32_t end() const { return first + size; }
    bool has(int32_t rank) const { return first <= rank && rank < end(); }
  };

  // Uses the outermost `levels` levels of the layout.
  NestedGroups(const Shape& shape, int32_t levels)
      : ranks_(shape.ranks), levels_(levels), layout_(shape.layout) {}

  int32_t stages() const { return levels_ + 1; }
  // Returns the group of this rank that the stage divides into parts. After the last stage the
  // group is the rank alone.
  Group group(int32_t stage, int32_t rank) const;
  // Within a group, parts have indices from 0. parts() returns the number of parts of this rank's
  // group, part_of() the index of this rank's part, and first_of_part() the first rank of a part.
  int32_t parts(int32_t stage, int32_t rank) const;
  int32_t part_of(int32_t stage, int32_t rank) const;
  int32_t first_of_part(int32_t stage, int32_t rank, int32_t part) const;

  // A second kind of index counts the parts of all groups of a stage, from 0. number() returns this
  // index of the rank's part; part() returns the part with this index.
  int32_t number(int32_t stage, int32_t rank) const;
  Group part(int32_t stage, int32_t number) const;

 private:
  int32_t ranks_;
  int32_t levels_;
  Layout layout_;
};

// Implements Algorithm::supports for algorithms that need at least two groups.
std::string several_groups_only(const Shape& shape);

// Returns the shape without the levels above hosts (racks).
Shape of_hosts(Shape shape);

}  // namespace tutti::algorithms
