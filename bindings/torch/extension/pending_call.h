// A library request in flight. It decides which thread makes progress on it, reports its
// completion, and releases its handle.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "connection.h"
#include "driver.h"
#include "tutti.h"

namespace tutti::torch_backend {

class PendingCall : public Driven, public std::enable_shared_from_this<PendingCall> {
 public:
  ~PendingCall() override { tutti_work_free(work_); }

  const Connection* connection() const override { return connection_.get(); }
  bool ended() const override;
  void drive() override;
  void let_go(const std::string& reason) override;

  // Waits for the call. Returns true once the call has ended, and false after `timeout` (0: no
  // limit). Never throws the call's error.
  bool wait(std::chrono::milliseconds timeout);
  std::exception_ptr error() const;
  void abort(const std::string& reason) { connection_->abort(reason); }
  // Returns the source rank of a completed receive; -1 for other calls and for incomplete receives.
  int source();
  const char* name() const { return name_; }

 protected:
  // Prepares a call. `name` appears in messages and must outlive the call: "all_reduce".
  PendingCall(std::shared_ptr<Connection> connection, const char* name)
      : connection_(std::move(connection)), name_(name) {}
  // Starts the call. The request's memory must stay valid until the call has ended. Throws if the
  // library rejects it.
  void begin(const tutti_request_t& request, const tutti_call_options_t& options);

  // Copies results from temporary tensors to the caller's tensors. Called once, when the request is
  // complete; an exception becomes the call's error.
  virtual void unpack() = 0;
  // Handles the end of the call; called once, with the mutex held and before any thread sees that
  // the call has ended.
  virtual void ending() = 0;
  // Handles the end of the call; called once, after ending(), without the mutex.
  virtual void settle() = 0;

  mutable std::mutex mutex_;  // guards the following members
  bool ended_ = false;
  std::exception_ptr error_;

 private:
  static void on_end(tutti_status_t status, const char* text, void* context);
  void end(std::exception_ptr error);
  void give_back();

  const std::shared_ptr<Connection> connection_;
  const char* const name_;

  std::condition_variable changed_;  // signals ended_

  std::mutex driving_;  // guards the following members
  tutti_work_t* work_ = nullptr;
  bool receives_ = false;
  int source_ = -1;
};

}  // namespace tutti::torch_backend
