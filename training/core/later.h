// A value that a backend's stream finds for the host: a loss, whether all of a tensor is finite. It
// is there once it is waited for; from a kernel that is done when it returns, at once.
#pragma once

#include <functional>
#include <utility>

namespace tutti::training {

// Used by one thread at a time.
template <typename T>
class Later {
 public:
  // There already.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Later(T value = {}) : value_(std::move(value)) {}
  // What wait() returns. Each copy calls it once, the first time that it is asked for the value.
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

// What the targets of a micro-batch lose.
struct Loss {
  double sum = 0;       // over those that count, in nats (predicted numbers: of squared errors)
  int64_t correct = 0;  // classes that had the largest logit
};

}  // namespace tutti::training
