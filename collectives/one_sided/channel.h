// Requests between this rank and others, by messages: ranks that fail together. Those of others are
// served by whoever makes progress in the job (Work::on_end).
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

// Ranks are those of its communicators. Any thread.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // Two communicators of the same ranks, for this alone; requests come from `source`, which may be
  // kAnySource. The part outlives the channel's end.
  Channel(Communicator requests, Communicator replies, int source, std::shared_ptr<OwnPart> part);

  Communicator& replies() { return replies_; }

  // Sends a request. Waits while too many messages are under way.
  void send(int rank, const Header& header);
  // Adds one with so many bytes to the next message to the rank, which goes when it is full, or
  // with the next request that is sent.
  void add(int rank, const Header& header, const void* payload, uint64_t bytes);
  // Sends what was added, to all ranks.
  void send_added();
  // The same as send() for any number of bytes; returns when they are sent.
  void send_data(int rank, const Header& header, const void* data);
  // Sends a request and waits for its answer.
  void ask(int rank, Header header, void* answer, uint64_t bytes);

  // How often the others, one after the other or all, have arrived at a fence.
  uint64_t arrivals() const { return arrivals_.load(std::memory_order_acquire); }

  // Begins to serve. Once.
  void serve();
  // Serves nothing any more: nothing of it runs after this.
  void stop();
  // Ends it on all ranks at once, for this reason. What is not flushed may be lost.
  void end(const std::string& why);
  // The service's call in flight: it makes progress for whoever waits for it. Throws why the
  // channel has failed.
  Work current();
  // Waits a while for a request to be served. A thread that waits again and again keeps the handle:
  // so it finds out which ranks are missing. Throws why the channel has failed.
  void wait_for_request(std::optional<Work>& handle, std::chrono::nanoseconds at_most);
  // Throws why the channel has failed, where it has.
  void check() const { abort_->throw_if_raised(); }
  bool failed() const { return abort_->raised(); }

 private:
  using Bytes = std::vector<std::byte>;
  using Step = void (Channel::*)();

  void follow(Work work, Step then);
  void go_on(const Error* error, Step then);
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
  int next_tag() { return static_cast<int>(tags_.fetch_add(1) % (kLargestTag + 1U)); }

  // The communicators are destroyed first: messages in flight use what stands before them.
  const std::shared_ptr<OwnPart> part_;
  const int source_;
  Bytes request_;
  uint64_t request_at_ = 0;  // of what was received: the next request,
  uint64_t request_end_ = 0;
  int request_source_ = 0;
  std::mutex added_mutex_;
  std::vector<Bytes> added_;  // by rank: the next message
  std::mutex sent_mutex_;
  std::deque<Work> sent_;  // this rank's latest messages
  std::atomic<uint32_t> tags_{0};
  std::atomic<uint64_t> arrivals_{0};
  std::mutex data_mutex_;
  std::recursive_mutex service_mutex_;  // of what follows
  Step next_ = nullptr;
  bool is_serving_ = false;
  bool stopped_ = false;
  Work current_;
  std::optional<Error> failure_;
  Communicator requests_;
  Communicator replies_;
  const AbortState* abort_;  // of requests_
};

}  // namespace tutti::one_sided
