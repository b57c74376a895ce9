// Python's communicators and calls in flight.
//
// Everything here is guarded by the GIL, which is released whenever the library is called.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/c/tutti.h"
#include "bindings/python/extension/arrays.h"

namespace tutti::python {

// A call in flight, and the objects that must live until it is complete.
struct Call {
  tutti_work_t* work = nullptr;
  Array input;
  Array output;
  bool abandoned = false;  // true: no thread will wait for it
};
using Calls = std::list<Call>;

// The arguments common to all calls, with the C interface's defaults.
struct Request {
  tutti_collective_t collective = TUTTI_BARRIER;
  nanobind::handle input;
  nanobind::handle output;
  tutti_op_t op = TUTTI_SUM;
  int32_t root = 0;
  const std::vector<uint64_t>* input_counts = nullptr;
  const std::vector<uint64_t>* output_counts = nullptr;
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
};

class Communicator {
 public:
  explicit Communicator(tutti_comm_t* handle);
  ~Communicator() { close(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool closed() const { return handle_ == nullptr; }
  // Returns the library's handle. Raises tutti.Error if the communicator is closed.
  tutti_comm_t* handle() const;

  Calls::iterator start(const Request& request);
  // Ends the library's use of the call's buffers.
  void end(Calls::iterator call);
  // Marks a call that no thread will wait for. Once the call has completed or failed, the next
  // start() frees it and releases its buffers.
  void abandon(Calls::iterator call);

  void open_queues(int32_t count);
  std::unique_ptr<Communicator> split(int32_t color, int32_t key);
  std::unique_ptr<Communicator> create(const std::vector<int32_t>& ranks, int32_t tag);
  std::unique_ptr<Communicator> shrink();
  std::unique_ptr<Communicator> grow(int32_t count);
  // Returns the flags, and the ranks that took part.
  std::pair<uint64_t, std::vector<int32_t>> agree(uint64_t flags);
  std::optional<tutti_message_t> probe(int32_t source, int32_t tag, bool wait);
  void abort(const std::string& reason);
  // Leaves the communicator. Waiting threads get an error, calls in flight are abandoned, and no
  // array is in use afterwards.
  void close();

  // While this object lives, counts a thread of this process as inside the library for this
  // communicator.
  class Visit {
   public:
    explicit Visit(Communicator& communicator) : inside_(communicator.inside_) { ++inside_; }
    ~Visit() { --inside_; }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    int& inside_;
  };

 private:
  class LongVisit;
  template <typename Block>
  void run(const char* name, Block block);
  void end_abandoned();
  bool of_another_process() const;

  tutti_comm_t* handle_;
  int rank_;
  int size_;
  int process_;     // number of forks at construction
  int inside_ = 0;  // number of visits
  std::vector<std::thread::id> long_visits_;
  Calls calls_;
  size_t abandoned_ = 0;
};

// The members of tutti_init_options_t. If `size` is 0, the environment describes the job.
struct JoinOptions {
  int32_t rank = 0;
  int32_t size = 0;
  std::optional<std::string> master_address;
  int32_t master_port = 0;
  std::optional<std::string> rendezvous_file;
};

// Joins the job. Raises tutti.Error. An interrupted join continues in the background.
std::unique_ptr<Communicator> join(const JoinOptions& options);

}  // namespace tutti::python
