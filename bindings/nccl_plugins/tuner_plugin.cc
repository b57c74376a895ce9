// The tuner plugin: for each version of NCCL's interface the struct that NCCL looks up.
#include <memory>

#include "bindings/nccl_plugins/host_log.h"
#include "bindings/nccl_plugins/tuner.h"

namespace tutti::nccl {

namespace {

constexpr char kName[] = "Tutti";

ncclResult_t init(size_t ranks, size_t nodes, ncclDebugLogger_t log, void** context) {
  return guarded(NCCL_INIT | NCCL_TUNING, [&] {
    *context = nullptr;
    set_logger(log);
    *context = std::make_unique<Tuner>(ranks, nodes).release();
  });
}

ncclResult_t init_of_v5(void** context, uint64_t, size_t ranks, size_t nodes, ncclDebugLogger_t log,
                        ncclNvlDomainInfo_t*, ncclTunerConstants_t*) {
  return init(ranks, nodes, log, context);
}

// Fills the table. The number of channels is left to NCCL, because Tutti's channels differ.
ncclResult_t fill(void* context, ncclFunc_t function, size_t bytes, int, float** table,
                  int algorithms, int protocols, int, int*) {
  return guarded(NCCL_TUNING, [&] {
    static_cast<Tuner*>(context)->fill(function, bytes, reinterpret_cast<float*>(table), algorithms,
                                       protocols);
  });
}

ncclResult_t fill_of_v3(void* context, ncclFunc_t function, size_t bytes, int pipelined,
                        float** table, int algorithms, int protocols, int* channels) {
  return fill(context, function, bytes, pipelined, table, algorithms, protocols, 0, channels);
}

ncclResult_t finalize(void* context) {
  return guarded(NCCL_TUNING,
                 [&] { std::unique_ptr<Tuner>(static_cast<Tuner*>(context)).reset(); });
}

}  // namespace

}  // namespace tutti::nccl

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
extern "C" {
extern const ncclTuner_v3_t ncclTunerPlugin_v3 = {tutti::nccl::kName, tutti::nccl::init,
                                                  tutti::nccl::fill_of_v3, tutti::nccl::finalize};
extern const ncclTuner_v4_t ncclTunerPlugin_v4 = {tutti::nccl::kName, tutti::nccl::init,
                                                  tutti::nccl::fill, tutti::nccl::finalize};
extern const ncclTuner_v5_t ncclTunerPlugin_v5 = {tutti::nccl::kName, tutti::nccl::init_of_v5,
                                                  tutti::nccl::fill, tutti::nccl::finalize};
extern const ncclTuner_v6_t ncclTunerPlugin_v6 = {
    tutti::nccl::kName, tutti::nccl::init_of_v5, tutti::nccl::fill, tutti::nccl::finalize, nullptr};
}
// NOLINTEND(readability-identifier-naming)
