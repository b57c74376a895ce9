#include "collectives/program/arithmetic.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace tutti {

namespace {

bool is_input(const ChunkRange& range) { return range.space == Space::input; }
bool is_output(const ChunkRange& range) { return range.space == Space::output; }

void append(Space space, int32_t chunk, RangeList& list) {
  if (list.empty() || list.back().space != space ||
      list.back().first + list.back().count != chunk) {
    list.push_back({.space = space, .first = chunk, .count = 0});
  }
  ++list.back().count;
}

// Returns the number `shift` for which, in place, input chunk i may be the same memory as output
// chunk i + shift.
int32_t shift_in_place(Collective collective, const Shape& shape, const Program& program) {
  const auto start = [&](Space space) { return location(collective, program, shape, space, 0); };
  return static_cast<int32_t>(start(Space::input) - start(Space::output));
}

// The last step that writes an output chunk, and whether the chunk is read afterwards.
struct End {
  int32_t writer = -1;      // last step that writes it
  bool read_later = false;  // true: a later step reads it, or an input chunk that may alias it
};

std::vector<End> ends_of(Collective collective, const Shape& shape, const Program& program) {
  std::vector<End> ends(static_cast<size_t>(program.output_chunks));
  const int32_t shift = shift_in_place(collective, shape, program);
  const auto note_read = [&](Space space, int32_t chunk) {
    if (space == Space::scratch) return;
    const int32_t place = chunk + (space == Space::input ? shift : 0);
    if (place >= 0 && place < program.output_chunks) ends[place].read_later = true;
  };
  for (size_t i = 0; i < program.steps.size(); ++i) {
    for_each_chunk(program.steps[i].src, note_read);
    for_each_chunk(program.steps[i].src2, note_read);
    for_each_chunk(program.steps[i].dst, [&](Space space, int32_t chunk) {
      if (space == Space::output) ends[chunk] = {.writer = static_cast<int32_t>(i)};
    });
  }
  return ends;
}

// Returns true if, with Means::shared, the value that the step stores has been divided already.
bool takes_means(const Step& step) {
  if (step.kind == StepKind::recv) return step.wire == Wire::element;
  return step.kind == StepKind::copy && std::ranges::any_of(step.src, is_output);
}

// Marks the steps that compute a value in scratch that is later sent as elements: these steps
// divide the value.
void divide_in_scratch(Program& program) {
  std::vector<Step*> writers(static_cast<size_t>(program.scratch_chunks), nullptr);
  for (Step& step : program.steps) {
    if (step.kind == StepKind::send && step.wire == Wire::element) {
      for_each_chunk(step.src, [&](Space space, int32_t chunk) {
        Step* const writer =
            space == Space::scratch ? writers[static_cast<size_t>(chunk)] : nullptr;
        if (writer != nullptr && writer->kind != StepKind::recv) writer->divides = true;
      });
    }
    for_each_chunk(step.dst, [&](Space space, int32_t chunk) {
      if (space == Space::scratch) writers[static_cast<size_t>(chunk)] = &step;
    });
  }
}

// Adds divisions by the number of ranks. A rank may divide a result for other ranks only in
// all_reduce and reduce, where one rank completes each result.
Program with_means(Means means, Collective collective, const Shape& shape, Program program) {
  const std::vector<End> ends = ends_of(collective, shape, program);
  const bool completed = means == Means::completed && collective == Collective::reduce;
  const bool shared = (means == Means::shared && collective == Collective::all_reduce) || completed;
  if (completed) divide_in_scratch(program);
  const size_t steps = program.steps.size();
  for (size_t i = 0; i < steps; ++i) {
    Step& step = program.steps[i];
    RangeList last;  // chunks that are not written again later
    bool all_last = true;
    bool any_read = false;
    for_each_chunk(step.dst, [&](Space space, int32_t chunk) {
      if (space != Space::output || ends[chunk].writer != static_cast<int32_t>(i)) {
        all_last = false;
        return;
      }
      any_read |= ends[chunk].read_later;
      append(space, chunk, last);
    });
    if (last.empty()) continue;
    if (shared) {
      step.divides |= all_last && !takes_means(step);
    } else if (all_last && !any_read) {
      step.divides = true;
    } else {
      program.steps.push_back(copy(last, last));
      program.steps.back().divides = true;
    }
  }
  return program;
}

// Marks the steps that scale input. A step that has written the output chunk at the location of an
// input chunk has scaled that input. Later steps then read the output chunk instead, because in
// place the unscaled input no longer exists.
Program with_scaled_inputs(Collective collective, const Shape& shape, Program program) {
  const int32_t shift = shift_in_place(collective, shape, program);
  std::vector<bool> written(static_cast<size_t>(program.output_chunks), false);
  for (Step& step : program.steps) {
    for (RangeList* const ranges : {&step.src, &step.src2}) {
      RangeList found;
      for_each_chunk(*ranges, [&](Space space, int32_t chunk) {
        const int32_t place = chunk + shift;
        const bool moved = space == Space::input && place >= 0 && place < program.output_chunks &&
                           written[static_cast<size_t>(place)];
        append(moved ? Space::output : space, moved ? place : chunk, found);
      });
      *ranges = std::move(found);
      step.scales |= std::ranges::any_of(*ranges, is_input);
    }
    for_each_chunk(step.dst, [&](Space space, int32_t chunk) {
      if (space == Space::output) written[static_cast<size_t>(chunk)] = true;
    });
  }
  return program;
}

}  // namespace

Program with_arithmetic(Arithmetic arithmetic, Means means, Collective collective,
                        const Shape& shape, Program program) {
  switch (arithmetic) {
    case Arithmetic::none:
      break;
    case Arithmetic::means:
      return with_means(means, collective, shape, std::move(program));
    case Arithmetic::scaled:
      return with_scaled_inputs(collective, shape, std::move(program));
  }
  return program;
}

}  // namespace tutti
