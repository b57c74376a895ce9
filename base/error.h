// The error type of the library.
//
// A message says what happened, where, the likely cause and the remedy, so that a person who reads
// it on one of a thousand ranks knows what to do next. Errors are thrown at the API only; the hot
// path throws nothing.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>

namespace tutti {

enum class ErrorCode : int {
  ok = 0,
  invalid_argument = 1,  // an argument of this call is invalid
  mismatch = 2,          // two ranks made calls that do not match
  rank_died = 3,         // a process of the job exited without destroying the communicator
  connection_lost = 4,   // the path to a living rank broke
  timeout = 5,           // an operation's deadline passed
  aborted = 6,           // the communicator was aborted by another rank, or by this rank's user
  bootstrap = 7,         // the ranks could not find or authenticate each other
  system = 8,            // an operating system call failed
  unsupported = 9,       // not available in this build, on this machine, or for these arguments
  internal = 10,         // a bug in Tutti
  corrupted = 11,        // bytes changed between two ranks
};

std::string_view name(ErrorCode code);

struct ErrorDetail {
  std::string where = {};   // rank, host, peer, call number, file ...
  std::string cause = {};   // likely cause, with the system's own words if any
  std::string remedy = {};  // what to do
  // The job's rank that the error is about: the rank that died, is waited for, or aborted; -1: none
  int rank = -1;
};

// Copies share the text. (It is not a std::runtime_error: that class counts references inside
// libstdc++.so, invisible to the thread sanitizer.)
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string_view what, const ErrorDetail& detail = {});
  ErrorCode code() const noexcept { return code_; }
  // Returns ErrorDetail::rank; -1 if no single rank is concerned.
  int rank() const noexcept { return rank_; }
  const char* what() const noexcept override { return text_->c_str(); }

 private:
  ErrorCode code_;
  int rank_;
  std::shared_ptr<const std::string> text_;
};

// Builds an Error of code `system` that quotes errno. `what` names the call and its object: "open
// /a/b".
Error system_error(std::string_view what, int errno_value, const ErrorDetail& detail = {});

}  // namespace tutti
