#include "transport/bootstrap/membership/watch.h"

#include <cerrno>
#include <map>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "transport/bootstrap/handshake/handshake.h"

namespace tutti::bootstrap {

namespace {

// Time for an answer. This is longer than the queried rank waits for the others.
constexpr std::chrono::seconds kTimeToAnswerWatch{5};

}  // namespace

JobWatch::JobWatch(const SocketAddress& address, std::string_view key, const Deadline& deadline)
    : place_(cat("the job at ", address.text())) {
  Fd socket;
  if (const int error = try_connect(address, deadline, socket); error != 0) {
    throw connect_error(place_, error);
  }
  const uint16_t encrypted = key.empty() ? 0 : 1;
  stream_ = shake_hands(std::move(socket), {.purpose = Purpose::watch, .encrypted = encrypted}, key,
                        place_, deadline);
  if (!stream_) {
    throw Error(ErrorCode::bootstrap, place_ + " closed the connection",
                {.cause = "the job is starting or ending, or has too many observers"});
  }
}

std::vector<RankStatus> JobWatch::look() {
  const std::string question = FrameWriter(FrameType::look).finish();
  const Deadline deadline = Deadline::after(kTimeToAnswerWatch);
  // If the write fails, reading the answer reports it.
  write_exactly(stream_, std::as_bytes(std::span(question)), deadline);
  std::map<int, RankStatus> sights;
  for (size_t size = 1; sights.size() < size;) {
    std::string body;
    int error = 0;
    switch (read_frame(stream_, body, kMaxFrameBytes, deadline, &error)) {
      case Transfer::complete:
        break;
      case Transfer::closed:
        throw Error(ErrorCode::connection_lost,
                    cat(place_, " has ended (", explain_close(error), ")"));
      case Transfer::timed_out:
        throw Error(ErrorCode::timeout, place_ + " does not answer",
                    {.cause = "the rank at that address is stopped"});
    }
    FrameReader frame(body);
    RankStatus status = get_status(frame);
    if (frame.type() != FrameType::status || !frame.ok() || status.size < 1) {
      throw Error(ErrorCode::bootstrap, place_ + " sent a malformed answer");
    }
    size = static_cast<size_t>(status.size);
    sights[status.rank] = std::move(status);
  }
  std::vector<RankStatus> all;
  all.reserve(sights.size());
  for (auto& [rank, status] : sights) all.push_back(std::move(status));
  return all;
}

}  // namespace tutti::bootstrap
