// Observes kernel calls: the name, time, operations and bytes of each call that dispatch.cc makes
// for a thread. Without an observer a call costs two extra branches.
#pragma once

#include <chrono>
#include <utility>

namespace tutti::training {

struct KernelCall {
  const char* name = "";  // a literal
  std::chrono::nanoseconds time{0};
  // Floating-point operations of matrix products, convolutions and attention; 0 for kernels whose
  // work is proportional to their bytes.
  double operations = 0;
  // Bytes of the call's arguments: each element is counted once per read and once per write.
  double bytes = 0;
};

class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  virtual void on_kernel(const KernelCall& call) = 0;
};

// The observer of the calling thread's kernel calls; null if there is none.
inline constinit thread_local KernelObserver* kernel_observer = nullptr;

// Makes `observer` receive the kernel calls of the constructing thread while the object exists.
// Work of a thread pool belongs to the call that submitted it.
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

// Measures one call of a kernel, from construction to destruction. Kernel calls inside it are not
// observed separately, because the thread has no observer during the call.
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
