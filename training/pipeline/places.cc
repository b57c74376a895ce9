#include "training/pipeline/places.h"

#include "base/text.h"

namespace tutti::training::pipeline {
namespace {

std::string describe_stage(const Communicator& stages, int stage) {
  return cat(stages.describe(stage), ", stage ", stage);
}

// Returns the entry whose result `entry` needs: for the last chunk's backward the forward of that
// chunk, for other entries input_of(). Returns nothing if the entry needs no result.
std::optional<Entry> needed_by(const Entry& entry, const Schedule& schedule) {
  if (entry.kind != Kind::forward && entry.chunk + 1 == schedule.chunks) {
    return Entry{Kind::forward, entry.micro_batch, entry.chunk};
  }
  if (!needs_input(schedule, entry)) return std::nullopt;
  return input_of(entry);
}

}  // namespace

bool follows_from_other_rank(ErrorCode code) {
  return code == ErrorCode::mismatch || code == ErrorCode::rank_died ||
         code == ErrorCode::connection_lost || code == ErrorCode::timeout ||
         code == ErrorCode::aborted || code == ErrorCode::corrupted;
}

std::string place_of(const Action& action, const Plan& plan, const Communicator& stages,
                     std::optional<int> culprit) {
  const int own = stages.rank();
  std::string needs;
  bool blamed = !culprit || *culprit == own;
  for (std::optional<Entry> entry = needed_by(action.entry, plan.schedule); entry;
       entry = needed_by(*entry, plan.schedule)) {
    const int from = plan.rank_of(entry->micro_batch, entry->chunk);
    if (from == own) break;  // this action and all its inputs are already done
    if (needs.empty() || from == culprit) {
      needs = cat(", which needs the ", describe(*entry), " on ", describe_stage(stages, from));
    }
    blamed = blamed || from == culprit;
    if (blamed) break;
  }
  std::string text = cat(describe_stage(stages, own), ", in the ", describe(action.entry), needs);
  if (!blamed) text += cat("; ", stages.describe(*culprit), " is stage ", *culprit);
  return text;
}

}  // namespace tutti::training::pipeline
