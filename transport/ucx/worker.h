// One UCX context and worker, the process's endpoint of all communication.
//
// Threads: one at a time.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

namespace tutti::ucx {

class Worker {
 public:
  // `rma`: remote memory access is used. Throws Error: unsupported (no UCX), system.
  explicit Worker(bool rma = false);

  ucp_context_h context() const { return context_.get(); }
  ucp_worker_h get() const { return worker_.get(); }
  // Opaque address of this worker for its peers.
  std::string address() const;
  // Becomes readable when something has arrived since the last successful arm().
  int event_fd() const { return event_fd_; }
  // Returns false if something has already arrived; call progress() and try again.
  bool arm() const;
  // Returns true if anything progressed. Invokes callbacks.
  bool progress() const;
  // Sets the handler of active messages with id `id`.
  void on_message(unsigned id, ucp_am_recv_callback_t handler, void* argument) const;
  // For a forked child: closes nothing, because everything belongs to the parent.
  void abandon();

 private:
  struct Cleanup {
    void operator()(ucp_context_h context) const;
    void operator()(ucp_worker_h worker) const;
  };
  std::unique_ptr<ucp_context, Cleanup> context_;
  std::unique_ptr<ucp_worker, Cleanup> worker_;
  int event_fd_ = -1;  // of the worker
};

}  // namespace tutti::ucx
