// The one error type of the library.
//
// A message says what happened, where, the likely cause and the remedy, so that whoever reads it on
// one rank of a thousand knows what to do next. Errors are thrown at the API only; nothing on the
// hot path throws.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>

namespace tutti {

enum class ErrorCode : int {
  ok = 0,
  invalid_argument = 1,  // the caller's own argument is wrong
  mismatch = 2,          // two ranks made calls that do not fit together
  rank_died = 3,         // a process of the job ended without leaving
  connection_lost = 4,   // the path to a living rank broke
  timeout = 5,           // an operation's deadline passed
  aborted = 6,           // another rank, or this one's user, aborted the communicator
  bootstrap = 7,         // the ranks could not find or did not accept each other
  system = 8,            // the operating system refused something
  unsupported = 9,       // not available in this build, on this machine, or for these arguments
  internal = 10,         // a bug in Tutti
  corrupted = 11,        // bytes changed between two ranks
};

std::string_view name(ErrorCode code);

struct ErrorDetail {
  std::string where = {};   // rank, host, peer, call number, file ...
  std::string cause = {};   // the likely cause; the system's own words where it said some
  std::string remedy = {};  // what to do
  int rank = -1;            // of the job, that it is about: who died, is waited for, gave up ...
};

// Copies share the text. (Not a std::runtime_error: its shared text is counted inside libstdc++.so,
// where the thread sanitizer cannot see it.)
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string_view what, const ErrorDetail& detail = {});
  ErrorCode code() const noexcept { return code_; }
  // ErrorDetail::rank; -1 where it is about none, or about several alike.
  int rank() const noexcept { return rank_; }
  const char* what() const noexcept override { return text_->c_str(); }

 private:
  ErrorCode code_;
  int rank_;
  std::shared_ptr<const std::string> text_;
};

// An Error of code `system` that quotes errno. `what` names the call and its object: "open /a/b".
Error system_error(std::string_view what, int errno_value, const ErrorDetail& detail = {});

}  // namespace tutti
