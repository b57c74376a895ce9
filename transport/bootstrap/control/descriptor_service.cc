#include "transport/bootstrap/control/descriptor_service.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>

#include "base/descriptor_limit.h"
#include "base/error.h"
#include "base/growing_pause.h"
#include "base/text.h"
#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

namespace {

constexpr std::chrono::milliseconds kLongestFetchPause{100};
constexpr std::chrono::seconds kTimeToHearOfDeath{2};

// Sends one byte with the descriptor; returns true if it was sent.
bool send_descriptor(int socket, int fd) {
  char byte = 0;
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

// Returns an empty Fd if the other side disconnected. Throws if this process is out of descriptors.
Fd receive_descriptor(int socket) {
  char byte = 0;
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1) return {};
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    throw Error(ErrorCode::system, "the kernel could not deliver a descriptor to this process",
                {.cause = "this process has reached its limit of open files",
                 .remedy = "raise the limit of open files (ulimit -n)"});
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return Fd(fd);
}

// Throws the error of the owner's death, or `error`. The owner's sockets close before the news of
// its death arrives, so this waits for the news.
[[noreturn]] void throw_death_or(const Error& error, const DeathOfOwner& death) {
  const Deadline deadline = Deadline::after(kTimeToHearOfDeath);
  for (GrowingPause pause(kLongestFetchPause); !deadline.passed(); pause.sleep()) {
    if (const std::optional<Error> of_death = death()) throw Error(*of_death);
  }
  throw Error(error);
}

}  // namespace

DescriptorService::DescriptorService(const std::string& unix_name, int world_size, int rank)
    : acceptor_(listen_on(unix_address(unix_name)), "", world_size, rank) {}

void DescriptorService::offer(const std::string& name, int fd) {
  Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw system_error(cat("duplicate the descriptor of '", name, "'"), errno);
  std::lock_guard lock(mutex_);
  offers_[name] = std::move(copy);
}

void DescriptorService::withdraw(const std::string& name) {
  std::lock_guard lock(mutex_);
  offers_.erase(name);
}

void DescriptorService::watch(PollSet& set) {
  const auto judge = [](const Hello& hello) {
    return hello.purpose == Purpose::descriptors ? Decision::accept : Decision::not_in_job;
  };
  acceptor_.watch(set, judge, [this](const Hello&, ByteStream socket) {
    requests_.push_back({.link = Link(std::move(socket))});
  });
  for (Request& request : requests_) serve(request);
  requests_.remove_if([](const Request& request) { return request.done; });
  for (Request& request : requests_) {
    set.add(request.link.fd(), POLLIN, [this, &request](short) { read(request); });
  }
}

void DescriptorService::read(Request& request) {
  const auto on_frame = [&](std::string_view body) {
    FrameReader frame(body);
    request.name = frame.get_text();
    return frame.ok() && frame.type() == FrameType::fetch && !request.name.empty();
  };
  // The connection is closed: the requester gave up.
  if (!request.link.receive(on_frame, kMaxFrameBytes)) request.done = true;
}

void DescriptorService::serve(Request& request) {
  std::lock_guard lock(mutex_);
  const auto offered = offers_.find(request.name);
  if (request.name.empty() || offered == offers_.end()) return;
  send_descriptor(request.link.fd(), offered->second.get());
  request.done = true;
}

Fd fetch_descriptor(const std::string& unix_name, const std::string& name, const Hello& hello,
                    const std::string& key, const std::string& whom, const DeathOfOwner& death,
                    const Deadline& deadline) {
  const auto late = [&] {
    return Error(ErrorCode::timeout, cat(whom, " did not offer '", name, "' in time"),
                 {.cause = "that rank is stuck, slow, or executes other calls"});
  };
  ByteStream stream;
  for (std::chrono::milliseconds pause(1);; pause = std::min(2 * pause, kLongestFetchPause)) {
    Fd socket;
    const int error = try_connect(unix_address(unix_name), deadline, socket);
    if (is_descriptor_shortage(error)) {
      throw descriptor_shortage(cat("connect to ", whom, " for '", name, "'"), error);
    }
    if (error == 0) {
      try {
        stream = shake_hands(std::move(socket), hello, key, whom, deadline);
      } catch (const Error&) {
        if (deadline.passed()) throw late();
        throw;
      }
    }
    if (stream) break;
    if (error != 0 && error != EAGAIN) {
      throw_death_or(Error(ErrorCode::connection_lost,
                           cat("cannot reach ", whom, " for '", name, "': ", std::strerror(error)),
                           {.cause = "that rank has ended, or a security module or sandbox "
                                     "separates the two processes",
                            .remedy = "set TUTTI_TRANSPORT=tcp to run without shared memory"}),
                     death);
    }
    if (deadline.passed()) throw late();
    // The owner's queue is full, or it serves its maximum number of guests.
    std::this_thread::sleep_for(pause);
  }
  const std::string request = FrameWriter(FrameType::fetch).put_text(name).finish();
  const bool asked =
      write_exactly(stream, std::as_bytes(std::span(request)), deadline) == Transfer::complete;
  if (asked && !wait_for(stream.get(), POLLIN, deadline)) throw late();
  Fd descriptor = asked ? receive_descriptor(stream.get()) : Fd();
  if (!descriptor) {
    throw_death_or(Error(ErrorCode::connection_lost, cat(whom, " ended before it passed '", name,
                                                         "' to ", "rank ", hello.rank)),
                   death);
  }
  return descriptor;
}

}  // namespace tutti::bootstrap
