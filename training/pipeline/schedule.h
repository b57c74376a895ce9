// A pipeline schedule is a table that lists what each rank computes, in order.
//
//   rank 0 | F0 F1 F2 B0 F3 B1 B2 B3           F: forward of a micro-batch through a chunk
//   rank 1 |    F0 F1 B0 F2 B1 F3 B2 B3        B: its backward
//
// The model is divided into `chunks` of consecutive units. A rank may have several chunks, and a
// chunk may be on several ranks (Chimera), as the table's entries imply. Messages, memory slots and
// versions of weights are derived from the table (plan.h). The plan is proved (check.h), and its
// time is predicted (simulate.h). Each table is created by a pure function (schedules.h), such as
// the one in one_f_one_b.cc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training::pipeline {

enum class Kind {
  forward,
  backward,         // gradients of inputs and weights together
  backward_input,   // gradients of inputs only: zero-bubble schedules split backward in two
  backward_weight,  // gradients of weights only; no other entry waits for this one
};

// Returns "forward", "backward", "backward_input" or "backward_weight".
std::string_view name(Kind kind);

struct Entry {
  Kind kind = Kind::forward;
  int micro_batch = 0;
  int chunk = 0;  // index in forward order
  bool operator==(const Entry&) const = default;
};

// Returns true if the entry adds to the weights' gradients. The micro-batch's activations are not
// needed after it.
inline bool makes_weight_gradient(const Entry& entry) {
  return entry.kind == Kind::backward || entry.kind == Kind::backward_weight;
}

// Returns an entry as text: "F3", "B0.2" (chunk 2, if there are more chunks than ranks), "I4"
// (backward_input), "W4".
std::string to_string(const Entry& entry, bool with_chunk);
// Returns a description: "backward of micro-batch 3 through chunk 2".
std::string describe(const Entry& entry);

// When weights are updated, and which version of them a micro-batch uses.
enum class Updates {
  flushed,  // once, after all micro-batches: synchronous training
  // After every `accumulated` micro-batches, on each rank separately. Forward uses the newest
  // weights of its rank. Backward uses the weights that the micro-batch's forward used (PipeDream).
  latest,
  // Like `latest`, but micro-batches of update u use the weights after update u - 2 (u counted from
  // 0; the first two use the initial weights) on every rank (PipeDream-2BW).
  delayed,
};

struct Schedule {
  std::string name;
  int ranks = 1;
  int micro_batches = 1;
  int chunks = 1;
  Updates updates = Updates::flushed;
  int accumulated = 1;  // micro-batches per update, if not flushed; divides micro_batches
  std::vector<std::vector<Entry>> table = {};  // by rank: its entries in order

  bool has_split_backward() const;
  // Returns the index of the entry's (micro-batch, chunk) among all such pairs.
  size_t cell(const Entry& entry) const {
    return static_cast<size_t>(entry.micro_batch) * static_cast<size_t>(chunks) +
           static_cast<size_t>(entry.chunk);
  }
};

// Returns the schedule with only the forward entries in their order, for validation.
Schedule forward_only(const Schedule& schedule);

}  // namespace tutti::training::pipeline
