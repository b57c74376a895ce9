// Non-blocking calls that Tutti does, behind requests of the MPI library.
//
// The program gets a generalized request, which is the MPI library's own: it may stand in one array
// with requests on messages. Who tests or waits for any request (completion.cc) moves Tutti's calls
// on the way, and completes the requests of those that have ended, so that no thread but the
// program's own calls MPI. Should the program be elsewhere for a millisecond, in a receive or a
// loop of its own, a helper moves Tutti's calls: others may wait for this rank's part in them.
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

// One call under way. The MPI library's request owns it.
class Pending {
 public:
  Pending(Call call, std::shared_ptr<Channel> channel);
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  virtual ~Pending();

 private:
  friend class Requests;
  virtual Work start(Communicator& communicator) = 0;
  // Stores what has come where the program wants it (unless the call failed), and lets go of all
  // that the call needed: the request is freed where MPI may not be called.
  virtual void finish(bool stores) = 0;

  const Call call_;
  std::shared_ptr<Channel> channel_;
  Work work_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  int status_ = MPI_SUCCESS;
  std::optional<Error> failure_;     // written before
  std::atomic<bool> ended_ = false;  // Tutti's call is over
};

// All of this process. Any thread may call.
class Requests {
 public:
  // Throws what starting the call does.
  void start(std::unique_ptr<Pending> pending, MPI_Request* request);
  static bool any() { return under_way_.load(std::memory_order_acquire) > 0; }
  // Moves all calls, and completes the requests of those that have ended.
  void look_after();
  // Returns when Tutti has done the call behind this request; at once if there is none.
  void wait(MPI_Request request);
  // The helper does nothing meanwhile: while a function of the program's may run, which is for the
  // program's threads only.
  void hold_helper(bool hold);
  // Before MPI is left.
  void close();

 private:
  static int query(void* pending, MPI_Status* status);
  static int release(void* pending);
  static int cancel(void* pending, int complete);
  void end(Pending& pending);
  void help(const std::stop_token& stop);
  bool poll_first();

  static inline std::atomic<int> under_way_{0};
  std::mutex mutex_;  // of all below
  std::vector<Pending*> pending_;
  uint64_t turns_ = 0;  // of look_after()
  int held_ = 0;
  std::condition_variable_any started_;
  bool helper_sleeps_ = false;
  std::jthread helper_;
};

Requests& requests();

// Costs next to nothing while there are none.
inline void look_after_requests() {
  if (Requests::any()) requests().look_after();
}

// Repeats a test of MPI's until it is done or fails: test(done) sets whether it is. As the MPI
// libraries wait, without sleep.
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
