// External observers of the job (watch.h), on the rank that they are connected to. For each look
// this rank sends a question to every rank, down the tree, and forwards each rank's answer to the
// watcher as it arrives. A rank that has not answered within a second is reported as silent.
//
//     watcher              this rank                 another rank
//        | -- look --------> | -- activity_question --> |
//        | <- status ------- | <- activity ------------ |
//
// Used by the control thread only. Without observers it does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <set>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "transport/bootstrap/control/client_table.h"
#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/handshake/link.h"
#include "transport/bootstrap/handshake/poll_set.h"
#include "transport/bootstrap/membership/rank_status.h"

namespace tutti::bootstrap {

class Watchers {
 public:
  static constexpr size_t kMost = 16;  // maximum number of concurrent watchers

  // The functions of the control channel that this class uses.
  struct Channel {
    std::function<void(int rank, const std::string& frame)> send;
    std::function<void(std::chrono::milliseconds delay, std::function<void()> what)> call_after;
  };

  Watchers(const Control& control, const ClientTable& clients, Channel channel)
      : control_(control), clients_(clients), channel_(std::move(channel)) {}

  bool has_room() const { return watchers_.size() < kMost; }
  void admit(ByteStream socket);
  void watch(PollSet& set);

  // Handle frames of the tree for this rank, without their destination. Return false if malformed.
  bool on_question(FrameReader& frame);
  bool on_activity(FrameReader& frame);

 private:
  struct Watcher {
    Link link;
    uint32_t look = 0;      // number of the latest look
    std::set<int> missing;  // ranks that have not answered that look
  };

  void serve(Watcher& watcher, short revents);
  void look(Watcher& watcher);
  void tell(Watcher& watcher, int rank, RankState state, const Activity& activity = {});
  void give_up(uint32_t look);
  Watcher* watcher_of(uint32_t look);

  const Control& control_;
  const ClientTable& clients_;
  const Channel channel_;
  std::list<Watcher> watchers_;
  uint32_t looks_ = 0;
};

}  // namespace tutti::bootstrap
