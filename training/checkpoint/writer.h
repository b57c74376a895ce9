// Identifies the writer of a run's directory: the members of a job during one epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace tutti::training {

struct Writer {
  std::string start;    // ID of the launch of the job: a random text that is the same on all ranks
  uint64_t epoch = 0;   // Communicator::membership(): increases with each change of the members
  uint64_t digest = 0;  // digest of the members

  bool operator==(const Writer&) const = default;
};

// A writer and the earlier writers of the same job. Empty for a new start of a job.
struct WriterHistory {
  std::vector<Writer> writers;  // in chronological order; the last one is the current writer
  bool has_written = false;  // true if an earlier writer of the list has written to the directory

  bool has(const Writer& writer) const;
};

// A writer and its number in the directory (fence.h), stored in each step that it publishes.
struct FenceMark {
  // increases from writer to writer; 0: stored in an earlier format, which has no fence
  uint64_t number = 0;
  Writer writer;

  bool operator==(const FenceMark&) const = default;
};

// Returns the writer as text for messages: "epoch 1 with members 00000000000000ab, of start
// 0f3c...".
std::string in_words(const Writer& writer);

Json to_json(const FenceMark& mark);
// Parses a mark. Throws Error(invalid_argument) for JSON that is not a mark.
FenceMark fence_mark_of(const Json& json);

}  // namespace tutti::training
