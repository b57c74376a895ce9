// Shared parts of the C interface: handles, translation of exceptions to codes, checked arguments,
// and options of any version.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "bindings/c/tutti.h"
#include "collectives/communicator.h"
#include "collectives/one_sided/window.h"

struct tutti_comm {
  tutti::Communicator communicator;
  std::mutex mutex;
  std::map<void*, tutti::Memory<std::byte>> allocations;  // guarded by mutex
  std::map<void*, tutti::Registration> registrations;     // guarded by mutex
  std::map<void*, tutti::Registration> windows;           // guarded by mutex
};

struct tutti_window {
  tutti::Window window;
};

struct tutti_joining {
  std::future<tutti::Communicator> communicator;
};

struct tutti_work {
  tutti::Work work;
};

namespace tutti::c {

// The last error of the calling thread.
struct LastError {
  std::string text;
  int32_t rank = -1;
};
LastError& last_error();
tutti_status_t failed(ErrorCode code, const char* text, int rank = -1);
[[noreturn]] void invalid(const std::string& what);

// Runs an action and converts its exception to a status, so that no exception crosses the C
// interface.
template <typename Action>
tutti_status_t guarded(Action action) noexcept {
  try {
    action();
    return TUTTI_OK;
  } catch (const Error& error) {
    return failed(error.code(), error.what(), error.rank());
  } catch (const std::bad_alloc&) {
    return failed(ErrorCode::system, "out of memory");
  } catch (const std::length_error&) {
    return failed(ErrorCode::system, "out of memory: the requested size exceeds any memory");
  } catch (const std::exception& error) {
    return failed(ErrorCode::internal, error.what());
  }
}

template <typename T>
T& checked(T* pointer, const char* what) {
  if (pointer == nullptr) invalid(cat(what, " is NULL"));
  return *pointer;
}

Communicator& of(tutti_comm_t* comm);
tutti_comm_t* handle_of(Communicator communicator);

// Copies options of any version. A caller compiled against an older header passes a shorter struct,
// whose missing members become zero; a newer caller may pass a longer one if its additional members
// are zero.
template <typename Options>
Options known_part(const Options* given, const char* what) {
  Options options{};
  if (given == nullptr) return options;
  const size_t size = given->size;
  constexpr size_t kMost = 4096;  // above the size of the options in any version
  if (size < sizeof(size_t) || size > kMost) {
    invalid(cat(what, "->size is ", size, ", which is not the size of the struct"));
  }
  const char* bytes = reinterpret_cast<const char*>(given);
  std::memcpy(&options, bytes, std::min(size, sizeof(Options)));
  for (size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) {
      throw Error(ErrorCode::unsupported,
                  cat(what, " sets a member that version ", tutti_version(), " does not know"),
                  {.remedy = "install the version that the program was compiled against"});
    }
  }
  return options;
}

std::chrono::nanoseconds nanoseconds_of(double seconds);
// A call's options, including the works that they refer to. An OptionsOfCall must not outlive the
// call, because a Work refers to its communicator.
class OptionsOfCall {
 public:
  explicit OptionsOfCall(const tutti_call_options_t* given);
  OptionsOfCall(const OptionsOfCall&) = delete;
  OptionsOfCall& operator=(const OptionsOfCall&) = delete;
  operator const CallOptions&() const { return options_; }  // NOLINT: implicit on purpose

 private:
  std::vector<Work> works_;
  CallOptions options_;
};
inline OptionsOfCall options_of(const tutti_call_options_t* given) { return OptionsOfCall(given); }
// Returns the caller's destination for a message after checking it. Throws Error(invalid_argument,
// unsupported).
tutti_message_t& checked_message(tutti_message_t* message);
void fill_message(const MessageInfo& info, tutti_message_t& message);
Buffer buffer_from(const tutti_buffer_t& given);
ConstBuffer const_buffer_from(const tutti_buffer_t& given);
ReduceOp op_from(tutti_op_t op);

// Starts a call and sets *work to its handle.
template <typename Begin>
tutti_status_t begin(tutti_work_t** work, Begin call) {
  return guarded([&] {
    checked(work, "the output pointer for the work") = nullptr;
    auto handle = std::make_unique<tutti_work>();
    handle->work = call();
    *work = handle.release();
  });
}

}  // namespace tutti::c
