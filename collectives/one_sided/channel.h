// Carries request messages between this rank and others. If one of these ranks fails, the channel
// fails on all of them. Any thread that makes progress in the job serves incoming requests
// (Work::on_end).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/abort.h"
#include "base/error.h"
#include "collectives/communicator.h"
#include "collectives/one_sided/own_part.h"
#include "collectives/one_sided/requests.h"

namespace tutti::one_sided {

// Channel between the ranks of one communicator, whose rank numbers it uses. Thread-safe.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // Creates the channel. `ranks` connects the ranks and is used only by this channel. Requests are
  // accepted from `source`, which may be kAnySource. The requests operate on `part`.
  Channel(Communicator ranks, int source, std::shared_ptr<OwnPart> part);

  // Waits until all ranks of the channel have called meet().
  void meet() { ranks_.barrier(); }

  // Sends a request. Blocks while too many messages are in flight.
  void send(int rank, const Header& header);
  // Appends a request and `bytes` bytes of payload to the next message to `rank`. The message is
  // sent when it is full or with the next request sent to that rank.
  void add(int rank, const Header& header, const void* payload, uint64_t bytes);
  // Sends all pending messages.
  void send_added();
  // Sends a request and any number of bytes of data; returns when the data have been sent.
  void send_data(int rank, const Header& header, const void* data);
  // Sends a request and blocks until its answer arrives.
  void ask(int rank, Header header, void* answer, uint64_t bytes);

  // Returns the number of `arrive` requests served so far. Each other rank sends one per fence.
  uint64_t arrivals() const { return arrivals_.load(std::memory_order_acquire); }

  // Starts serving requests. Call it once.
  void serve();
  // Stops serving requests; no handler runs after it returns.
  void stop();
  // Fails the channel on all ranks with this reason. Unflushed requests may be lost.
  void end(const std::string& why);
  // Returns the receive that is in flight for the next request, so that a waiting thread can make
  // progress on it. Throws the channel's error if it has failed.
  Work current();
  // Waits for a request to be served, for at most `at_most`. A thread that waits repeatedly passes
  // the same handle, because the handle measures how long nothing has progressed. Throws the
  // channel's error if it has failed.
  void wait_for_request(std::optional<Work>& handle, std::chrono::nanoseconds at_most);
  // Throws the channel's error if it has failed.
  void check() const { abort_->throw_if_raised(); }
  bool failed() const { return abort_->raised(); }

 private:
  using Bytes = std::vector<std::byte>;
  using Step = void (Channel::*)();

  void follow(Work work, Step then);
  void proceed(const Error* error, Step then);
  void fail(const Error& error);
  void receive_message();
  void on_message();
  void serve_message();
  void serve_request(const Header& header, const std::byte* payload);
  [[noreturn]] static void refuse_request(const std::string& how);
  void check_request(const Header& header) const;
  void answer(int to, int tag, const void* data, uint64_t bytes);
  void answer_with_memory(int to, const Header& header);
  void send_added(int rank);
  std::optional<Work> dispatch(int rank);
  void hold_back(std::optional<Work> work);
  int next_tag() {
    constexpr uint32_t kTags = kLargestTag - kFirstAnswerTag + 1;
    return kFirstAnswerTag + static_cast<int>(tags_.fetch_add(1) % kTags);
  }

  // ranks_ is declared after these members, so that it is destroyed first, because its messages in
  // flight use these members.
  const std::shared_ptr<OwnPart> part_;
  const int source_;
  Bytes request_;
  uint64_t request_at_ = 0;  // next request in the received message
  uint64_t request_end_ = 0;
  int request_source_ = 0;
  std::mutex added_mutex_;
  std::vector<Bytes> added_;  // by rank: the message that collects requests
  std::mutex sent_mutex_;
  std::deque<Work> sent_;  // this rank's latest messages
  std::atomic<uint32_t> tags_{0};
  std::atomic<uint64_t> arrivals_{0};
  std::mutex data_mutex_;
  std::recursive_mutex service_mutex_;  // guards the members below
  Step next_ = nullptr;
  bool is_serving_ = false;
  bool stopped_ = false;
  Work current_;
  std::optional<Error> failure_;
  Communicator ranks_;
  const AbortState* abort_;  // abort state of ranks_
};

}  // namespace tutti::one_sided
