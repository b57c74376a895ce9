#include "collectives/program/arithmetic.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace tutti {

namespace {

constexpr int32_t kNoStep = -1;

bool has_result(Collective collective, const Shape& shape) {
  if (collective == Collective::reduce) return shape.rank == shape.root;
  return collective != Collective::exscan || shape.rank > 0;
}

// For each chunk of one space a step, as lists of chunks for each step.
std::vector<RangeList> by_step(const std::vector<int32_t>& step_of, Space space, size_t steps) {
  std::vector<RangeList> lists(steps);
  for (size_t i = 0; i < step_of.size(); ++i) {
    if (step_of[i] == kNoStep) continue;
    const auto chunk = static_cast<int32_t>(i);
    RangeList& list = lists[static_cast<size_t>(step_of[i])];
    if (!list.empty() && list.back().first + list.back().count == chunk) {
      ++list.back().count;
    } else {
      list.push_back({.space = space, .first = chunk});
    }
  }
  return lists;
}

// Chunks that one step writes last are divided by one, in the order of those steps.
Program with_means(Program program) {
  std::vector<int32_t> writer(static_cast<size_t>(program.output_chunks), kNoStep);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    for (const ChunkRange& range : program.steps[i].dst) {
      if (range.space != Space::output) continue;
      std::fill_n(writer.begin() + range.first, range.count, static_cast<int32_t>(i));
    }
  }
  for (const RangeList& list : by_step(writer, Space::output, program.steps.size())) {
    if (!list.empty()) program.steps.push_back(divide(list));
  }
  return program;
}

// Chunks that one step reads first are scaled by one, in the order of those steps. The scratch
// chunks are of the inputs' size classes.
Program with_scaled_inputs(Collective collective, const Shape& shape, Program program) {
  const int32_t classes = size_classes(collective, program, shape.ranks);
  const int32_t base = (program.scratch_chunks + classes - 1) / classes * classes;
  std::vector<int32_t> reader(static_cast<size_t>(program.input_chunks), kNoStep);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    for (RangeList* const ranges : {&program.steps[i].src, &program.steps[i].src2}) {
      for (ChunkRange& range : *ranges) {
        if (range.space != Space::input) continue;
        for (int32_t chunk = range.first; chunk < range.first + range.count; ++chunk) {
          int32_t& first = reader[static_cast<size_t>(chunk)];
          if (first == kNoStep) first = static_cast<int32_t>(i);
        }
        range = scratch(base + range.first, range.count);
      }
    }
  }
  std::vector<Step> steps;
  for (const RangeList& list : by_step(reader, Space::input, program.steps.size())) {
    if (list.empty()) continue;
    RangeList products;
    for (const ChunkRange& range : list)
      products.push_back(scratch(base + range.first, range.count));
    steps.push_back(scale(list, std::move(products)));
  }
  steps.insert(steps.end(), program.steps.begin(), program.steps.end());
  program.steps = std::move(steps);
  program.scratch_chunks = base + program.input_chunks;
  return program;
}

}  // namespace

Program with_arithmetic(Arithmetic arithmetic, Collective collective, const Shape& shape,
                        Program program) {
  if (arithmetic == Arithmetic::means && has_result(collective, shape)) {
    return with_means(std::move(program));
  }
  if (arithmetic == Arithmetic::scaled) {
    return with_scaled_inputs(collective, shape, std::move(program));
  }
  return program;
}

}  // namespace tutti
