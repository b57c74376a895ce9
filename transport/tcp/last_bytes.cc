#include "transport/tcp/last_bytes.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <iterator>

#include "base/deadline.h"
#include "base/growing_pause.h"
#include "base/log.h"
#include "base/text.h"

namespace tutti {

namespace {

// Returns the number of bytes in flight. The FIN counts as a byte.
size_t not_arrived(const Fd& socket) {
  pollfd state{.fd = socket.get(), .events = 0, .revents = 0};
  if (::poll(&state, 1, 0) != 0) return 0;  // the reader has closed the connection, or it broke
  int bytes = 0;
  return ::ioctl(socket.get(), SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}

}  // namespace

void LastBytes::add(std::vector<Fd> sockets, std::chrono::nanoseconds patience) {
  const std::lock_guard lock(mutex_);
  time_limit_ = patience;
  std::ranges::move(sockets, std::back_inserter(sockets_));
  look();
}

size_t LastBytes::look() {
  size_t bytes = 0;
  std::erase_if(sockets_, [&](const Fd& socket) {
    const size_t left = not_arrived(socket);
    bytes += left;
    return left == 0;
  });
  return bytes;
}

void LastBytes::wait() {
  const std::lock_guard lock(mutex_);
  const auto give_up = [&] {
    return time_limit_.count() == 0 ? Deadline::never() : Deadline::after(time_limit_);
  };
  Deadline silence = give_up();
  GrowingPause pause(std::chrono::milliseconds(20));
  for (size_t left = look(); left > 0;) {
    if (silence.passed()) {
      log(LogLevel::warning,
          cat(left,
              " bytes sent before this rank left the job have not arrived; likely "
              "cause: a rank is stuck, or executes fewer calls"));
      return;
    }
    pause.sleep();
    const size_t before = left;
    left = look();
    if (left != before) silence = give_up();
  }
}

}  // namespace tutti
