#include "tools/launcher/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace tutti::tool {

SignalInbox::SignalInbox(const std::vector<int>& numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (int number : numbers) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    if (number == SIGPIPE || action.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  fd_ = Fd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_) throw system_error("signalfd", errno);
}

SignalInbox::~SignalInbox() {
  take();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> SignalInbox::take() {
  std::vector<int> taken;
  signalfd_siginfo info;
  while (::read(fd_.get(), &info, sizeof info) == sizeof info) {
    taken.push_back(static_cast<int>(info.ssi_signo));
  }
  return taken;
}

}  // namespace tutti::tool
