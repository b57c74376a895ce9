// An undo function that runs once: by run(), on destruction, or when another one is assigned.
#pragma once

#include <functional>
#include <utility>

namespace tutti {

class Cleanup {
 public:
  Cleanup() = default;
  explicit Cleanup(std::function<void()> undo) : undo_(std::move(undo)) {}
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;
  Cleanup(Cleanup&& other) noexcept : undo_(std::exchange(other.undo_, nullptr)) {}
  Cleanup& operator=(Cleanup&& other) noexcept {
    run();
    undo_ = std::exchange(other.undo_, nullptr);
    return *this;
  }
  ~Cleanup() { run(); }

  void run() {
    if (const std::function<void()> undo = std::exchange(undo_, nullptr)) undo();
  }

 private:
  std::function<void()> undo_;
};

}  // namespace tutti
