// A pipeline schedule is a table: what each rank computes, in which order. Nothing else.
//
//   rank 0 | F0 F1 F2 B0 F3 B1 B2 B3        F: forward of a micro-batch through a chunk of the
//   model rank 1 |    F0 F1 B0 F2 B1 F3 B2 B3     B: backward of it
//
// The model is cut into `chunks` of consecutive units; several may lie on one rank, one on several
// ranks (Chimera): the table itself says where, by who computes what. Messages, slots of memory and
// versions of the weights are derived (plan.h), the whole is proved (check.h) and priced
// (simulate.h). A pure function makes each table: one_f_one_b.cc and its neighbours (schedules.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training::pipeline {

enum class Kind {
  forward,
  backward,         // of inputs and weights at once
  backward_input,   // zero-bubble schedules take the two apart:
  backward_weight,  // nobody waits for this one
};

// "forward", "backward", "backward_input", "backward_weight".
std::string_view name(Kind kind);

struct Entry {
  Kind kind = Kind::forward;
  int micro_batch = 0;
  int chunk = 0;  // in forward order
  bool operator==(const Entry&) const = default;
};

// Whether it adds to the weights' gradients: nothing needs the micro-batch's activations after it.
inline bool makes_weight_gradient(const Entry& entry) {
  return entry.kind == Kind::backward || entry.kind == Kind::backward_weight;
}

// "F3", "B0.2" (of chunk 2, if there are more chunks than ranks), "I4" (backward_input), "W4".
std::string to_string(const Entry& entry, bool with_chunk);
// "backward of micro-batch 3 through chunk 2".
std::string describe(const Entry& entry);

// When weights change, and which ones a micro-batch sees.
enum class Updates {
  flushed,  // once, after all micro-batches: synchronous training
  latest,   // after every `accumulated` micro-batches, on each rank by itself. Forward takes the
            // newest weights of its rank, backward the ones that its forward took (PipeDream)
  delayed,  // the same, but micro-batches of update u take the weights that update u - 2 left
            // (u counted from 0; the first two: the initial ones) on every rank (PipeDream-2BW)
};

struct Schedule {
  std::string name;
  int ranks = 1;
  int micro_batches = 1;
  int chunks = 1;
  Updates updates = Updates::flushed;
  int accumulated = 1;  // micro-batches of an update, if not flushed; divides micro_batches
  std::vector<std::vector<Entry>> table = {};  // by rank, in order

  bool has_split_backward() const;
  // A micro-batch in a chunk, counted from 0.
  size_t cell(const Entry& entry) const {
    return static_cast<size_t>(entry.micro_batch) * static_cast<size_t>(chunks) +
           static_cast<size_t>(entry.chunk);
  }
};

// The forward entries alone, in their order: validation.
Schedule forward_only(const Schedule& schedule);

}  // namespace tutti::training::pipeline
