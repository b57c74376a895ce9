// Observation of kernel calls: name, time, operations and bytes of each call that dispatch.cc makes
// for a thread. Without an observer a call costs two branches more.
#pragma once

#include <chrono>
#include <utility>

namespace tutti::training {

struct KernelCall {
  const char* name = "";  // a literal
  std::chrono::nanoseconds time{0};
  // Floating-point operations of matrix products, convolutions and attention. 0: the kernel's work
  // is proportional to its bytes.
  double operations = 0;
  // The elements of its arguments, each once for reading and once for writing.
  double bytes = 0;
};

class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  virtual void on_kernel(const KernelCall& call) = 0;
};

// The observer of the calling thread's kernel calls; null: none.
inline constinit thread_local KernelObserver* kernel_observer = nullptr;

// While it lives, `observer` sees the kernel calls of the thread that made it. What a thread pool
// computes belongs to the call that gave the pool its work.
class ObserveKernels {
 public:
  explicit ObserveKernels(KernelObserver* observer)
      : before_(std::exchange(kernel_observer, observer)) {}
  ~ObserveKernels() { kernel_observer = before_; }
  ObserveKernels(const ObserveKernels&) = delete;
  ObserveKernels& operator=(const ObserveKernels&) = delete;

 private:
  KernelObserver* before_;
};

// One call of a kernel, from construction to destruction. Calls within it are part of it: the
// thread has no observer meanwhile.
class KernelSpan {
 public:
  explicit KernelSpan(const char* name) : observer_(kernel_observer) {
    if (observer_ != nullptr) [[unlikely]]
      begin(name);
  }
  ~KernelSpan() {
    if (observer_ != nullptr) [[unlikely]]
      end();
  }
  KernelSpan(const KernelSpan&) = delete;
  KernelSpan& operator=(const KernelSpan&) = delete;

  bool observed() const { return observer_ != nullptr; }
  void set_operations(double operations) { call_.operations = operations; }
  void set_bytes(double bytes) { call_.bytes = bytes; }

 private:
  void begin(const char* name);
  void end();

  KernelObserver* observer_;
  KernelCall call_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tutti::training
