// One UCX context and worker, through which all communication of the process goes.
//
// Threads: one at a time.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

namespace tutti::ucx {

class Worker {
 public:
  // Starts UCX, with remote memory access if `rma`. Throws Error: unsupported (no UCX), system.
  explicit Worker(bool rma = false);

  ucp_context_h context() const { return context_.get(); }
  ucp_worker_h get() const { return worker_.get(); }
  // Returns the address of this worker for its peers. It is opaque to them.
  std::string address() const;
  // Returns a descriptor that becomes readable when something has arrived since the last successful
  // arm().
  int event_fd() const { return event_fd_; }
  // Prepares event_fd() for a sleep. Returns false if something has already arrived; then call
  // progress() and try again.
  bool arm() const;
  // Returns true if anything progressed. Invokes callbacks.
  bool progress() const;
  // Sets the handler of active messages with id `id`.
  void on_message(unsigned id, ucp_am_recv_callback_t handler, void* argument) const;
  // Called in a forked child: nothing is closed, because all resources belong to the parent.
  void abandon();

 private:
  struct Cleanup {
    void operator()(ucp_context_h context) const;
    void operator()(ucp_worker_h worker) const;
  };
  std::unique_ptr<ucp_context, Cleanup> context_;
  std::unique_ptr<ucp_worker, Cleanup> worker_;
  int event_fd_ = -1;  // descriptor of the worker
};

}  // namespace tutti::ucx
