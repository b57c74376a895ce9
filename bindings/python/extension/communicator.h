// Communicators and calls under way, as Python holds them.
//
// Everything here is guarded by the GIL, which is let go of whenever the library is called.
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

// A call that the library works on, and what must live until it is complete.
struct Call {
  tutti_work_t* work = nullptr;
  Array input;
  Array output;
  bool abandoned = false;  // nobody will wait for it
};
using Calls = std::list<Call>;

// What all forms of calls have in common; the defaults are those of the C interface.
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
  // The library's. Raises tutti.Error if there is none any more.
  tutti_comm_t* handle() const;

  Calls::iterator start(const Request& request);
  // Its buffers are the caller's again.
  void end(Calls::iterator call);
  // Nobody will wait for the call: it ends once it is complete.
  void abandon(Calls::iterator call);

  void open_queues(int32_t count);
  std::unique_ptr<Communicator> split(int32_t color, int32_t key);
  std::unique_ptr<Communicator> create(const std::vector<int32_t>& ranks, int32_t tag);
  std::unique_ptr<Communicator> shrink();
  std::unique_ptr<Communicator> grow(int32_t count);
  // The flags, and who took part.
  std::pair<uint64_t, std::vector<int32_t>> agree(uint64_t flags);
  std::optional<tutti_message_t> probe(int32_t source, int32_t tag, bool wait);
  void abort(const std::string& reason);
  // Leaves the communicator: threads that wait in it get an error, calls under way are given up,
  // and no array is in use afterwards.
  void close();

  // While it lives, a thread of this process is inside of the library on the communicator's behalf.
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
  int process_;     // forks before it was made
  int inside_ = 0;  // visits
  std::vector<std::thread::id> long_visits_;
  Calls calls_;
  size_t abandoned_ = 0;
};

// As tutti_init_options_t; size 0: what the environment says.
struct JoinOptions {
  int32_t rank = 0;
  int32_t size = 0;
  std::optional<std::string> master_address;
  int32_t master_port = 0;
  std::optional<std::string> rendezvous_file;
};

// Joins the job. Raises tutti.Error. A join that is interrupted is left to itself.
std::unique_ptr<Communicator> join(const JoinOptions& options);

}  // namespace tutti::python
