#include "training/parallel/replay/order_files.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_text.h"
#include "training/core/group.h"

namespace tutti::training {
namespace {

// Runs `make` on the first rank. If it fails, all ranks throw.
template <typename Make>
void done_by_first(Communicator& ranks, const Make& make) {
  std::optional<Error> error;
  try {
    if (ranks.rank() == 0) make();
  } catch (const Error& its) {
    error = its;
  }
  throw_any(ranks, error);
}

}  // namespace

OrderFiles::OrderFiles(Communicator ranks, const SyncOptions& options)
    : ranks_(std::move(ranks)), record_(options.record), replay_(options.replay) {}

void OrderFiles::open_replayed() {
  if (recorded_ || replay_.empty()) return;
  std::string text;
  done_by_first(ranks_, [&] {
    text = file_text(replay_, FileKind::order,
                     {.where = "--replay", .remedy = "use a file written by --record"});
  });
  recorded_.emplace(text_of_first(ranks_, std::move(text)), replay_);
}

const StretchOrder* OrderFiles::replayed(const StretchOrder& wanted) {
  open_replayed();
  if (!recorded_) return nullptr;
  return made_on_all(ranks_, [&] { return &recorded_->at(wanted); });
}

const StretchOrder* OrderFiles::replayed_from(int64_t first) {
  open_replayed();
  return recorded_ ? recorded_->from(first) : nullptr;
}

void OrderFiles::record(StretchOrder stretch, int first_server, const UpdateOrder& own) {
  if (record_.empty()) return;
  if (!std::exchange(is_recording_, true)) {
    done_by_first(ranks_, [&] { recorder_.emplace(record_, stretch.first - 1); });
  }
  const std::vector<std::string> orders = gather_texts(ranks_, text_of(own));
  done_by_first(ranks_, [&] {
    for (size_t server = 0; server < stretch.servers.size(); ++server) {
      stretch.servers[server] = order_in(orders[static_cast<size_t>(first_server) + server]);
    }
    recorder_->add(stretch);
  });
}

}  // namespace tutti::training
