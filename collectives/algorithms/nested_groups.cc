#include "collectives/algorithms/nested_groups.h"

namespace tutti::algorithms {

NestedGroups::Group NestedGroups::group(int32_t stage, int32_t rank) const {
  if (stage == 0) return {0, ranks_};
  if (stage > levels_) return {rank, 1};
  const int32_t number = layout_.group_of(stage - 1, rank);
  return {layout_.first(stage - 1, number), layout_.size(stage - 1, number)};
}

int32_t NestedGroups::number(int32_t stage, int32_t rank) const {
  return stage < levels_ ? layout_.group_of(stage, rank) : rank;
}

NestedGroups::Group NestedGroups::part(int32_t stage, int32_t number) const {
  if (stage >= levels_) return {number, 1};
  return {layout_.first(stage, number), layout_.size(stage, number)};
}

int32_t NestedGroups::parts(int32_t stage, int32_t rank) const {
  const Group all = group(stage, rank);
  return number(stage, all.end() - 1) - number(stage, all.first) + 1;
}

int32_t NestedGroups::part_of(int32_t stage, int32_t rank) const {
  return number(stage, rank) - number(stage, group(stage, rank).first);
}

int32_t NestedGroups::first_of_part(int32_t stage, int32_t rank, int32_t part) const {
  const int32_t wanted = number(stage, group(stage, rank).first) + part;
  return stage < levels_ ? layout_.first(stage, wanted) : wanted;
}

std::string several_groups_only(const Shape& shape) {
  if (shape.layout.levels() > 0) return "";
  return "it requires several hosts (or caches or NUMA nodes of one host), at least one with "
         "several ranks";
}

Shape of_hosts(Shape shape) {
  shape.layout = shape.layout.of_hosts();
  return shape;
}

}  // namespace tutti::algorithms
