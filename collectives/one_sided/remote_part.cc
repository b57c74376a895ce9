#include "collectives/one_sided/remote_part.h"

#include <sched.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"

namespace tutti::one_sided {

namespace {

// An access takes a few microseconds with network cards, and up to milliseconds with fabrics over
// sockets.
constexpr int kPolls = 200;  // polls before the first yield to other processes
constexpr int kPollsBeforeSleep = 2000;
constexpr int kPollsPerLook = 64;  // polls between two checks for failures
// Time for the control channel to report a death that the fabric noticed first.
constexpr std::chrono::seconds kReportTime{2};

}  // namespace

RemotePart::RemotePart(std::unique_ptr<RemoteMemory> memory, int rank, Progress progress)
    : memory_(std::move(memory)), rank_(rank), progress_(std::move(progress)) {}

template <typename Done>
void RemotePart::wait(const Done& done) {
  std::optional<Deadline> deadline;
  for (int polls = 1; !done(); ++polls) {
    const bool sleeps = polls > kPollsBeforeSleep;
    if (sleeps || polls % kPollsPerLook == 0) {
      const std::string why = memory_->failure();
      if (!why.empty()) refuse(why);
      if (!deadline) {
        const std::chrono::nanoseconds timeout = settings().get_duration("TUTTI_TIMEOUT");
        deadline = timeout.count() == 0 ? Deadline::never() : Deadline::after(timeout);
      }
      if (deadline->passed()) {
        throw Error(ErrorCode::timeout,
                    cat("an access to the memory of rank ", rank_, " has not ended"),
                    {.where = "one-sided call",
                     .cause = "that rank is stopped, or its network is down",
                     .remedy = "check that rank, or raise TUTTI_TIMEOUT",
                     .rank = rank_});
      }
    }
    if (polls > kPolls && !sleeps) ::sched_yield();
    progress_(sleeps);
  }
}

void RemotePart::refuse(const std::string& why) {
  for (const Deadline deadline = Deadline::after(kReportTime); !deadline.passed();) {
    progress_(true);  // throws if the owner has died
  }
  throw Error(ErrorCode::system, cat("rank ", rank_, " cannot be accessed: ", why),
              {.where = "one-sided call",
               .cause = "that rank has left the job, or the network between the hosts failed",
               .remedy = "check that rank; TUTTI_RMA=off sends messages instead",
               .rank = rank_});
}

void RemotePart::put(uint64_t offset, std::span<const std::byte> from) {
  size_t put = 0;
  const auto is_put = [&] {
    while (put < from.size()) {
      const size_t more = memory_->put(offset + put, from.subspan(put));
      if (more == 0) return false;
      put += more;
    }
    return true;
  };
  if (!is_put()) wait(is_put);
}

void RemotePart::get(uint64_t offset, std::span<std::byte> into) {
  flush();
  const std::unique_ptr<RemoteMemory::Get> get = memory_->get(offset, into);
  wait([&] { return get->advance(); });
}

void RemotePart::flush() {
  wait([&] { return memory_->is_flushed(); });
  const std::string why = memory_->failure();
  if (!why.empty()) refuse(why);
}

void RemotePart::set_served(uint64_t messages) {
  uint64_t served = served_.load(std::memory_order_relaxed);
  while (served < messages && !served_.compare_exchange_weak(served, messages)) {
  }
}

}  // namespace tutti::one_sided
