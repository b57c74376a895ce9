#include "transport/tcp/ready_set.h"

#include <sys/epoll.h>

#include <array>

namespace tutti {

void ReadySet::watch(int socket, Entry& entry) {
  if (!epoll_) epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &entry}};
  entry.watched = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) == 0;
}

void ReadySet::forget(int socket, Entry& entry) {
  if (entry.watched) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
  entry = {};
}

bool ReadySet::is_idle(Entry& entry) {
  if (!entry.idle) return false;
  if (entry.round == round_) ask();
  entry.round = round_;
  return entry.idle;
}

void ReadySet::ask() {
  ++round_;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) static_cast<Entry*>(events[i].data.ptr)->idle = false;
}

}  // namespace tutti
