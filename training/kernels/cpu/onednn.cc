#include "training/kernels/cpu/onednn.h"

#include "base/error.h"
#include "base/text.h"

// From omp.h, which not every compiler brings along; oneDNN's own OpenMP runtime defines them.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int count);
}

namespace tutti::training::onednn {

const dnnl::engine& engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type data_type(DType type) {
  return type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

bool computes_in(DType type) {
  // What the library may use (ONEDNN_MAX_CPU_ISA), which may be less than what the processor has.
  static const bool has_avx512 = [] {
    constexpr auto kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
  }();
  return type == DType::f32 || (type == DType::bf16 && has_avx512);
}

OneThread::OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThread::~OneThread() { omp_set_num_threads(before_); }

Primitive::Primitive(dnnl::primitive primitive, Descriptors arguments)
    : primitive_(std::move(primitive)), stream_(engine()) {
  for (const auto& [argument, descriptor] : arguments) {
    if (descriptor.get_size() == 0) continue;
    arguments_.emplace(argument, dnnl::memory(descriptor, engine(), nullptr));
  }
}

void Primitive::run(Addresses addresses) {
  for (const auto& [argument, address] : addresses) {
    const auto found = arguments_.find(argument);
    if (found != arguments_.end()) found->second.set_data_handle(const_cast<void*>(address));
  }
  primitive_.execute(stream_, arguments_);
  stream_.wait();
}

void throw_failure(const std::string& what, const dnnl::error& error) {
  throw Error(ErrorCode::internal, cat("oneDNN failed on ", what), {.cause = error.what()});
}

}  // namespace tutti::training::onednn
