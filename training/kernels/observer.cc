#include "training/kernels/observer.h"

namespace tutti::training {

void KernelSpan::begin(const char* name) {
  call_.name = name;
  kernel_observer = nullptr;
  start_ = std::chrono::steady_clock::now();
}

void KernelSpan::end() {
  call_.time = std::chrono::steady_clock::now() - start_;
  kernel_observer = observer_;
  observer_->on_kernel(call_);
}

}  // namespace tutti::training
