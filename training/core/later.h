// A value that a backend's stream computes for the host, for example a loss. get() waits for the
// value. Synchronous kernels return values that are ready.
#pragma once

#include <functional>
#include <utility>

namespace tutti::training {

// A value of type T that is perhaps not computed yet. One thread at a time may use it.
template <typename T>
class Later {
 public:
  // Creates a value that is ready. NOLINTNEXTLINE(google-explicit-constructor)
  Later(T value = {}) : value_(std::move(value)) {}
  // Creates a value that `wait` returns. Each copy calls `wait` once, on its first get().
  static Later when(std::function<T()> wait) {
    Later later;
    later.wait_ = std::move(wait);
    return later;
  }

  const T& get() const {
    if (wait_) value_ = std::exchange(wait_, nullptr)();
    return value_;
  }

 private:
  mutable std::function<T()> wait_;
  mutable T value_{};
};

// Loss of a micro-batch's targets.
struct Loss {
  double sum = 0;       // sum over counted targets, in nats (regression: sum of squared errors)
  int64_t correct = 0;  // number of targets whose class had the largest logit
};

}  // namespace tutti::training
