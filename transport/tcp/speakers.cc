#include "transport/tcp/speakers.h"

#include <sys/epoll.h>

#include <array>

namespace tutti {

void Speakers::watch(int socket, Speaker& speaker) {
  if (!epoll_) epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &speaker}};
  speaker.watched = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) == 0;
}

void Speakers::forget(int socket, Speaker& speaker) {
  if (speaker.watched) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
  speaker = {};
}

bool Speakers::is_silent(Speaker& speaker) {
  if (!speaker.silent) return false;
  if (speaker.round == round_) ask();
  speaker.round = round_;
  return speaker.silent;
}

void Speakers::ask() {
  ++round_;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) static_cast<Speaker*>(events[i].data.ptr)->silent = false;
}

}  // namespace tutti
