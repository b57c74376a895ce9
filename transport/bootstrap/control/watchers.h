// Those who watch the job from outside (watch.h), on the rank that they are connected to: each look
// is a question to every rank, down the tree, and each rank's answer goes to the watcher when it
// comes. Whoever has not answered within a second is told as silent.
//
//     watcher              this rank                 another one
//        | -- look --------> | -- activity_question --> |
//        | <- sight -------- | <- activity ------------ |
//
// Belongs to the control thread. A rank that nobody watches from has nothing to do here.
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
#include "transport/bootstrap/membership/sight.h"

namespace tutti::bootstrap {

class Watchers {
 public:
  static constexpr size_t kMost = 16;  // at a time

  // What they need of the control channel.
  struct Channel {
    std::function<void(int rank, const std::string& frame)> send;
    std::function<void(std::chrono::milliseconds delay, std::function<void()> what)> call_after;
  };

  Watchers(const Control& control, const ClientTable& clients, Channel channel)
      : control_(control), clients_(clients), channel_(std::move(channel)) {}

  bool has_room() const { return watchers_.size() < kMost; }
  void admit(ByteStream socket);
  void watch(PollSet& set);

  // Frames of the tree for this rank, but for who they are for. False for nonsense.
  bool on_question(FrameReader& frame);
  bool on_activity(FrameReader& frame);

 private:
  struct Watcher {
    Link link;
    uint32_t look = 0;      // the last one's number
    std::set<int> missing;  // of that look: they have not answered yet
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
