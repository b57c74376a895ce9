#include "tools/tutti/stop_signals.h"

#include <array>
#include <atomic>
#include <csignal>

namespace tutti::tool {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};

std::atomic<int> stop_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may use it");

void on_signal(int number) {
  int none = 0;
  if (stop_signal.compare_exchange_strong(none, number)) return;
  // The signal is delivered when the handler returns.
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return;  // signals are ignored in a shell's background job
  action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(number, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  stop_signal = 0;
  for (const int number : kSignals) handle(number, on_signal);
}

StopSignals::~StopSignals() {
  for (const int number : kSignals) handle(number, SIG_DFL);
}

int StopSignals::requested() { return stop_signal; }

}  // namespace tutti::tool
