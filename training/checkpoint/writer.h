// Identity of the writer of a run's directory: the members of a job during one epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace tutti::training {

struct Writer {
  std::string start;    // identity of the job's start: random, equal on all of its ranks
  uint64_t epoch = 0;   // Communicator::membership(): increases with each change
  uint64_t digest = 0;  // of its members

  bool operator==(const Writer&) const = default;
};

// A writer and the writers that it continues. Empty: a new start.
struct WriterHistory {
  std::vector<Writer> writers;  // oldest first; the last one is the current writer
  bool has_written = false;     // true if a writer before the last one had the directory

  bool has(const Writer& writer) const;
};

// A writer and its number in the directory (fence.h), stored in each step that it publishes.
struct FenceMark {
  uint64_t number = 0;  // increases from writer to writer; 0: an earlier format without it
  Writer writer;

  bool operator==(const FenceMark&) const = default;
};

// "epoch 1 with members 00000000000000ab, of start 0f3c..."
std::string in_words(const Writer& writer);

Json to_json(const FenceMark& mark);
// Throws Error(invalid_argument) for JSON that is not a mark.
FenceMark fence_mark_of(const Json& json);

}  // namespace tutti::training
