// The writer of a run's directory: the members of a job, from one change of them to the next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace tutti::training {

struct Writer {
  std::string start;    // the start of the job: random, alike on all of its ranks
  uint64_t epoch = 0;   // Communicator::membership(): grows with each change
  uint64_t digest = 0;  // of its members

  bool operator==(const Writer&) const = default;
};

// A writer and those that it continues. Empty: a start of its own.
struct WriterHistory {
  std::vector<Writer> writers;  // the oldest first; the last one writes now
  bool has_written = false;     // true if one before the last had the directory

  bool has(const Writer& writer) const;
};

// A writer and its number in the directory (fence.h). Each step that it publishes has both.
struct FenceMark {
  uint64_t number = 0;  // grows from writer to writer; 0: an earlier format had none
  Writer writer;

  bool operator==(const FenceMark&) const = default;
};

// "epoch 1 with members 00000000000000ab, of start 0f3c..."
std::string in_words(const Writer& writer);

Json to_json(const FenceMark& mark);
// Throws Error(invalid_argument) for what is none.
FenceMark fence_mark_of(const Json& json);

}  // namespace tutti::training
