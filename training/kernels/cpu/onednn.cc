#include "training/kernels/cpu/onednn.h"

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "base/reduce.h"
#include "base/text.h"

// Declared here because omp.h is not part of every compiler; oneDNN's OpenMP runtime defines them.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int count);
}

namespace tutti::training::onednn {
namespace {

// Limits oneDNN to the instruction set of TUTTI_CPU, if that is less than the processor has.
// Otherwise oneDNN detects the processor, or obeys ONEDNN_MAX_CPU_ISA. Must precede the first use
// of the library.
void follow_instruction_set() {
  static const bool followed = [] {
    const InstructionSet selected = selected_instruction_set();
    const bool is_best = std::ranges::none_of(kAllInstructionSets, [&](InstructionSet set) {
      return set > selected && is_available(set);
    });
    if (is_best) return true;
    const auto most =
        selected == InstructionSet::baseline ? dnnl::cpu_isa::sse41 : dnnl::cpu_isa::avx2;
    if (dnnl::set_max_cpu_isa(most) != dnnl::status::success) {
      throw Error(ErrorCode::unsupported,
                  cat("oneDNN cannot be limited to ", name(selected), ", which TUTTI_CPU selects"),
                  {.cause = "oneDNN was built without this limit, or was used before",
                   .remedy = "unset TUTTI_CPU, or set ONEDNN_MAX_CPU_ISA as well"});
    }
    return true;
  }();
  static_cast<void>(followed);
}

// Blocks all but synchronous signals in this thread while the object exists. oneDNN's products for
// AVX2 use the stack pointer for an address in their own memory, and a signal handler would
// overwrite the memory below it.
class NoInterruptions {
 public:
  NoInterruptions() { pthread_sigmask(SIG_BLOCK, &interrupting(), &before_); }
  ~NoInterruptions() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoInterruptions(const NoInterruptions&) = delete;
  NoInterruptions& operator=(const NoInterruptions&) = delete;

 private:
  static const sigset_t& interrupting() {
    static const sigset_t all = [] {
      sigset_t set;
      sigfillset(&set);
      for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
        sigdelset(&set, own);
      }
      return set;
    }();
    return all;
  }

  sigset_t before_;
};

}  // namespace

const dnnl::engine& engine() {
  follow_instruction_set();
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type data_type(DType type) {
  return type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

bool computes_in(DType type) {
  // The limit of the library, which may be below the instructions that the processor supports.
  static const bool has_avx512 = [] {
    follow_instruction_set();
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
  const NoInterruptions no_interruptions;
  primitive_.execute(stream_, arguments_);
  stream_.wait();
}

void throw_failure(const std::string& what, const dnnl::error& error) {
  throw Error(ErrorCode::internal, cat("oneDNN failed on ", what), {.cause = error.what()});
}

}  // namespace tutti::training::onednn
