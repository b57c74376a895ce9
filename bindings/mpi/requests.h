// Implements non-blocking calls that Tutti executes and the program sees as requests of the MPI
// library.
//
// The program receives a generalized request of the MPI library. It may pass this request in one
// array with requests of messages. Only the program's own threads call MPI: every test or wait on
// any request (completion.cc) makes progress on Tutti's calls, and completes the requests of
// finished ones. If the program makes no such call for a millisecond, because it is in a receive or
// computes, a helper thread makes progress on Tutti's calls, because other ranks may be waiting for
// them.
#pragma once

#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/error.h"
#include "bindings/mpi/report.h"
#include "collectives/communicator.h"

namespace tutti::mpi {

struct Channel;

// A call in flight. The MPI library's request owns it.
class Pending {
 public:
  Pending(Call call, std::shared_ptr<Channel> channel);
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  virtual ~Pending();

 private:
  friend class Requests;
  virtual Work start(Communicator& communicator) = 0;
  // Stores the results in the program's buffers (if `stores`: the call has not failed), and
  // releases all resources of the call. After that the request may be freed at any time, even where
  // MPI must not be called.
  virtual void finish(bool stores) = 0;

  const Call call_;
  std::shared_ptr<Channel> channel_;
  Work work_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  int status_ = MPI_SUCCESS;
  std::optional<Error> failure_;     // written before ended_
  std::atomic<bool> ended_ = false;  // true: Tutti's call has ended
};

// All requests of this process. Thread-safe.
class Requests {
 public:
  // Starts a call and creates its request. Throws what the start of the call throws.
  void start(std::unique_ptr<Pending> pending, MPI_Request* request);
  static bool any() { return in_flight_.load(std::memory_order_acquire) > 0; }
  // Makes progress on all calls, and completes the requests of those that have ended.
  void progress();
  // Blocks until Tutti's call behind this request has ended; returns at once if the request is not
  // Tutti's.
  void wait(MPI_Request request);
  // Suspends the helper thread while a function that the program supplied may run, because only the
  // program's threads may execute it.
  void hold_helper(bool hold);
  // Ends the helper thread. It must be called before MPI_Finalize.
  void close();

 private:
  static int query(void* pending, MPI_Status* status);
  static int release(void* pending);
  static int cancel(void* pending, int complete);
  void end(Pending& pending);
  void help(const std::stop_token& stop);
  bool poll_oldest();

  static inline std::atomic<int> in_flight_{0};
  std::mutex mutex_;  // guards the following members
  std::vector<Pending*> pending_;
  uint64_t turns_ = 0;  // number of progress() calls
  int held_ = 0;
  std::condition_variable_any started_;
  bool helper_sleeps_ = false;
  std::jthread helper_;
};

Requests& requests();

// Makes progress on the calls in flight. It takes almost no time if there are none.
inline void look_after_requests() {
  if (Requests::any()) requests().progress();
}

// Repeats an MPI test until test(done) sets `done` or fails. It spins, as the MPI libraries do.
template <typename Test>
int test_until_done(Test test) {
  for (;;) {
    look_after_requests();
    int done = 0;
    const int status = test(done);
    if (done != 0 || status != MPI_SUCCESS) return status;
    std::this_thread::yield();
  }
}

}  // namespace tutti::mpi
