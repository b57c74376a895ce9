// A ControlClient that records its notifications and lets a test wait for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "transport/bootstrap/control/control.h"

namespace tutti::testing {

// How long a test waits at most.
inline constexpr std::chrono::seconds kPatience{20};

class RecordingClient final : public ControlClient {
 public:
  explicit RecordingClient(int rank = 0) : rank_(rank) {}

  void on_abort(const Error& error) override {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    changed_.notify_all();
  }
  std::string on_question(int asker, uint32_t call) override {
    return cat("rank ", rank_, " tells rank ", asker, " of call ", call);
  }
  void on_answer(int rank, uint32_t call, std::string_view answer) override {
    std::lock_guard lock(mutex_);
    answers_[{rank, call}] = answer;
    changed_.notify_all();
  }
  void on_connection(int rank, int lane, int, ByteStream socket) override {
    std::lock_guard lock(mutex_);
    connections_[{rank, lane}] = std::move(socket);
    changed_.notify_all();
  }

  void on_opened(int rank, int lane, ByteStream socket) override {
    std::lock_guard lock(mutex_);
    opened_[{rank, lane}] = std::move(socket);
    changed_.notify_all();
  }

  bool aborted() {
    std::lock_guard lock(mutex_);
    return error_.has_value();
  }
  // Returns the first error. Throws if none arrives in time.
  Error wait_for_abort() {
    std::unique_lock lock(mutex_);
    wait(lock, "an abort", [&] { return error_.has_value(); });
    return *error_;
  }
  std::string wait_for_answer(int rank, uint32_t call) {
    std::unique_lock lock(mutex_);
    wait(lock, "an answer", [&] { return answers_.contains({rank, call}); });
    return answers_[{rank, call}];
  }
  // Repeats the question until it is answered, as callers do, because it may be lost while the
  // channel is repaired.
  void ask_until_answered(Control& control, uint64_t communicator, int rank) {
    constexpr std::chrono::milliseconds kAskAgain{20};
    const Deadline deadline = Deadline::after(kPatience);
    std::unique_lock lock(mutex_);
    while (!answers_.contains({rank, 1U})) {
      if (deadline.passed()) throw Error(ErrorCode::timeout, "no answer came");
      control.ask(communicator, rank, 1);
      changed_.wait_for(lock, kAskAgain);
    }
  }
  ByteStream wait_for_connection(int rank, int lane) {
    std::unique_lock lock(mutex_);
    wait(lock, "a connection", [&] { return connections_.contains({rank, lane}); });
    return std::move(connections_[{rank, lane}]);
  }
  ByteStream wait_for_opened(int rank, int lane) {
    std::unique_lock lock(mutex_);
    wait(lock, "the connection it asked for", [&] { return opened_.contains({rank, lane}); });
    return std::move(opened_[{rank, lane}]);
  }

 private:
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, const char* what, Condition condition) {
    if (changed_.wait_for(lock, kPatience, condition)) return;
    throw Error(ErrorCode::timeout, cat("rank ", rank_, " waited in vain for ", what));
  }

  const int rank_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Error> error_;
  std::map<std::pair<int, uint32_t>, std::string> answers_;
  std::map<std::pair<int, int>, ByteStream> connections_;
  std::map<std::pair<int, int>, ByteStream> opened_;
};

// A client that is attached to the control channel as long as this object exists.
class AttachedClient {
 public:
  AttachedClient(Control& control, uint64_t communicator, std::vector<int> members)
      : control_(control), communicator_(communicator), client_(control.rank()) {
    control_.attach(communicator_, std::move(members), &client_);
  }
  ~AttachedClient() { control_.detach(communicator_); }
  AttachedClient(const AttachedClient&) = delete;
  AttachedClient& operator=(const AttachedClient&) = delete;

  RecordingClient* operator->() { return &client_; }

 private:
  Control& control_;
  const uint64_t communicator_;
  RecordingClient client_;
};

inline std::vector<int> everybody(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

// A barrier for ranks that are threads.
class Barrier {
 public:
  explicit Barrier(int ranks) : ranks_(ranks) {}
  void wait() {
    std::unique_lock lock(mutex_);
    const int round = (arrived_++) / ranks_;
    changed_.notify_all();
    if (!changed_.wait_for(lock, kPatience, [&] { return arrived_ >= (round + 1) * ranks_; })) {
      throw Error(ErrorCode::timeout, "a rank did not come to the test's barrier");
    }
  }

 private:
  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
};

}  // namespace tutti::testing
