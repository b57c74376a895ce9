// The groups of a layout as stages: at stage 0 all ranks fall into hosts, then each host into what
// it falls into, and at the last stage an innermost group into its ranks.
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

  // Over so many of the layout's levels, the outermost ones.
  NestedGroups(const Shape& shape, int32_t levels)
      : ranks_(shape.ranks), levels_(levels), layout_(shape.layout) {}

  int32_t stages() const { return levels_ + 1; }
  // The one of this rank that falls into parts at a stage; after the last stage, the rank alone.
  Group group(int32_t stage, int32_t rank) const;
  // These parts, numbered from 0 within that group: how many, the rank's, and the first rank of
  // one.
  int32_t parts(int32_t stage, int32_t rank) const;
  int32_t part_of(int32_t stage, int32_t rank) const;
  int32_t first_of_part(int32_t stage, int32_t rank, int32_t part) const;

  // The parts of all groups of a stage, numbered from 0: the rank's, and one by its number.
  int32_t number(int32_t stage, int32_t rank) const;
  Group part(int32_t stage, int32_t number) const;

 private:
  int32_t ranks_;
  int32_t levels_;
  Layout layout_;
};

// For Algorithm::supports.
std::string several_groups_only(const Shape& shape);

// Without the racks that hosts are in.
Shape of_hosts(Shape shape);

}  // namespace tutti::algorithms
