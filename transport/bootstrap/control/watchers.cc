#include "transport/bootstrap/control/watchers.h"

#include <algorithm>
#include <utility>

namespace tutti::bootstrap {

namespace {

constexpr std::chrono::seconds kTimeToAnswer{1};

// Starts a frame with its destination, so that ranks on the way can route it.
FrameWriter frame_to(int to, FrameType type) {
  FrameWriter frame(type);
  frame.put(int32_t{to});
  return frame;
}

}  // namespace

void Watchers::admit(ByteStream socket) { watchers_.push_back({.link = Link(std::move(socket))}); }

void Watchers::watch(PollSet& set) {
  std::erase_if(watchers_, [](const Watcher& watcher) { return !watcher.link.connected(); });
  for (Watcher& watcher : watchers_) {
    const short events = watcher.link.wants_to_write() ? POLLIN | POLLOUT : POLLIN;
    set.add(watcher.link.fd(), events,
            [this, &watcher](short revents) { serve(watcher, revents); });
  }
}

void Watchers::serve(Watcher& watcher, short revents) {
  if ((revents & POLLOUT) != 0) watcher.link.flush();
  if ((revents & ~POLLOUT) == 0) return;
  const auto take = [&](std::string_view body) {
    // A watcher that asks again before it has received the whole previous answer is disconnected.
    const bool has_all = watcher.missing.empty() && !watcher.link.wants_to_write();
    if (FrameReader(body).type() != FrameType::look || !has_all) return false;
    look(watcher);
    return true;
  };
  if (!watcher.link.receive(take, kMaxFrameBytes)) watcher.link.close();
}

void Watchers::look(Watcher& watcher) {
  watcher.look = ++looks_;
  watcher.missing.clear();
  for (int rank = 0; rank < control_.size(); ++rank) {
    if (control_.has_died(rank)) {
      tell(watcher, rank, RankState::died);
    } else if (control_.has_left(rank)) {
      tell(watcher, rank, RankState::left);
    } else if (rank == control_.rank()) {
      tell(watcher, rank, RankState::answers, clients_.activity());
    } else {
      watcher.missing.insert(rank);
      channel_.send(rank, frame_to(rank, FrameType::activity_question)
                              .put(int32_t{control_.rank()})
                              .put(watcher.look)
                              .finish());
    }
  }
  if (watcher.missing.empty()) return;
  channel_.call_after(kTimeToAnswer, [this, look = watcher.look] { give_up(look); });
}

bool Watchers::on_question(FrameReader& frame) {
  const auto from = frame.get<int32_t>();
  const auto look = frame.get<uint32_t>();
  if (!frame.ok() || from < 0 || from >= control_.size()) return false;
  FrameWriter answer = frame_to(from, FrameType::activity);
  answer.put(int32_t{control_.rank()}).put(look);
  put(answer, clients_.activity());
  channel_.send(from, answer.finish());
  return true;
}

bool Watchers::on_activity(FrameReader& frame) {
  const auto from = frame.get<int32_t>();
  const auto look = frame.get<uint32_t>();
  const Activity activity = get_activity(frame);
  if (!frame.ok()) return false;
  Watcher* const watcher = watcher_of(look);
  if (watcher != nullptr && watcher->missing.erase(from) != 0) {
    tell(*watcher, from, RankState::answers, activity);
  }
  return true;
}

void Watchers::give_up(uint32_t look) {
  Watcher* const watcher = watcher_of(look);
  if (watcher == nullptr) return;
  for (const int rank : std::exchange(watcher->missing, {})) {
    const bool died = control_.has_died(rank);
    const RankState gone = died ? RankState::died : RankState::left;
    tell(*watcher, rank, died || control_.has_left(rank) ? gone : RankState::silent);
  }
}

void Watchers::tell(Watcher& watcher, int rank, RankState state, const Activity& activity) {
  const PeerInfo& peer = control_.peer(rank);
  watcher.link.send(status_frame({.rank = rank,
                                  .size = control_.size(),
                                  .state = state,
                                  .host = peer.host,
                                  .pid = peer.pid,
                                  .address = peer.address,
                                  .port = peer.port,
                                  .activity = activity}));
}

Watchers::Watcher* Watchers::watcher_of(uint32_t look) {
  const auto found = std::ranges::find(watchers_, look, &Watcher::look);
  return found == watchers_.end() ? nullptr : &*found;
}

}  // namespace tutti::bootstrap
