// A request of the library's that is under way: who drives it, how it ends, and when its handle is
// given back.
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

  // True once it has ended, false when `timeout` (none: 0) passed first. Throws nothing of the
  // call's.
  bool wait(std::chrono::milliseconds timeout);
  std::exception_ptr error() const;
  void abort(const std::string& reason) { connection_->abort(reason); }
  // The rank that a receive has received from; -1 before its end, and of other calls.
  int source();
  const char* name() const { return name_; }

 protected:
  // `name` is for messages, and stays: "all_reduce".
  PendingCall(std::shared_ptr<Connection> connection, const char* name)
      : connection_(std::move(connection)), name_(name) {}
  // Begins. The request's memory stays until the end. Throws where the call was refused.
  void begin(const tutti_request_t& request, const tutti_call_options_t& options);

  // Once, when the request is complete; what it throws is the call's error.
  virtual void unpack() = 0;
  // Once, at the end, while the mutex is held: before anybody sees that the call has ended.
  virtual void ending() = 0;
  // Once, after the end.
  virtual void settle() = 0;

  mutable std::mutex mutex_;  // guards what follows
  bool ended_ = false;
  std::exception_ptr error_;

 private:
  static void on_end(tutti_status_t status, const char* text, void* context);
  void end(std::exception_ptr error);
  void give_back();

  const std::shared_ptr<Connection> connection_;
  const char* const name_;

  std::condition_variable changed_;  // ended_

  std::mutex driving_;  // guards what follows
  tutti_work_t* work_ = nullptr;
  bool receives_ = false;
  int source_ = -1;
};

}  // namespace tutti::torch_backend
