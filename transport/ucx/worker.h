// One UCX context and worker: what a process sends and receives with.
//
// Threads: one at a time.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

namespace tutti::ucx {

class Worker {
 public:
  // Throws Error: unsupported (no UCX), system.
  Worker();

  ucp_context_h context() const { return context_.get(); }
  ucp_worker_h get() const { return worker_.get(); }
  // Opaque: by it others reach this worker.
  std::string address() const;
  // Readable when something has come since arm() last said true.
  int event_fd() const { return event_fd_; }
  // False: something is there already; make progress and try again.
  bool arm() const;
  // True if anything moved. Calls back.
  bool progress() const;
  // `handler` hears of every active message of number `id`.
  void on_message(unsigned id, ucp_am_recv_callback_t handler, void* argument) const;
  // For a child of fork(): nothing is closed, since all of it is the parent's.
  void abandon();

 private:
  struct Cleanup {
    void operator()(ucp_context_h context) const;
    void operator()(ucp_worker_h worker) const;
  };
  std::unique_ptr<ucp_context, Cleanup> context_;
  std::unique_ptr<ucp_worker, Cleanup> worker_;
  int event_fd_ = -1;  // the worker's
};

}  // namespace tutti::ucx
