// NCCL's side of `tutti bench --device cuda --peers nccl`: the ranks are threads of this process
// with one GPU each, and times are measured by GPU events. The loader chooses libnccl.so.2.
//
//   nccl_peer SOCKET-NAME RANKS
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/error.h"
#include "base/text.h"
#include "bench/device_side.h"
#include "bench/peers/peer_program.h"
#include "bench/peers/rank_threads.h"
#include "bindings/nccl/abi.h"

namespace tutti::bench {

namespace {

constexpr const char* kLibrary = "libnccl.so.2";

template <typename Function>
Function* find(void* library, const char* name) {
  if (void* const function = ::dlsym(library, name)) return reinterpret_cast<Function*>(function);
  throw Error(ErrorCode::unsupported, cat(kLibrary, " lacks ", name),
              {.cause = "it is older than NCCL 2.28", .remedy = "install a newer NCCL"});
}

// The functions of NCCL that are used, loaded at run time.
class Nccl {
 public:
  decltype(ncclGetUniqueId)* get_unique_id =
      find<decltype(ncclGetUniqueId)>(open(), "ncclGetUniqueId");
  decltype(ncclCommInitRank)* init = find<decltype(ncclCommInitRank)>(open(), "ncclCommInitRank");
  decltype(ncclCommDestroy)* destroy = find<decltype(ncclCommDestroy)>(open(), "ncclCommDestroy");
  decltype(ncclGetLastError)* last_error =
      find<decltype(ncclGetLastError)>(open(), "ncclGetLastError");
  decltype(ncclAllReduce)* all_reduce = find<decltype(ncclAllReduce)>(open(), "ncclAllReduce");
  decltype(ncclAllGather)* all_gather = find<decltype(ncclAllGather)>(open(), "ncclAllGather");
  decltype(ncclReduceScatter)* reduce_scatter =
      find<decltype(ncclReduceScatter)>(open(), "ncclReduceScatter");
  decltype(ncclBroadcast)* broadcast = find<decltype(ncclBroadcast)>(open(), "ncclBroadcast");
  decltype(ncclReduce)* reduce = find<decltype(ncclReduce)>(open(), "ncclReduce");
  decltype(ncclAlltoAll)* all_to_all = find<decltype(ncclAlltoAll)>(open(), "ncclAlltoAll");
  decltype(ncclGather)* gather = find<decltype(ncclGather)>(open(), "ncclGather");
  decltype(ncclScatter)* scatter = find<decltype(ncclScatter)>(open(), "ncclScatter");

  void require(ncclResult_t result) const {
    if (result != ncclSuccess) throw Error(ErrorCode::system, cat("NCCL: ", last_error(nullptr)));
  }

 private:
  static void* open() {
    static void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw Error(ErrorCode::unsupported, ::dlerror());
    return library;
  }
};

// State that the ranks share.
struct Shared {
  explicit Shared(int count) : ranks(count) { nccl.require(nccl.get_unique_id(&id)); }
  RankThreads ranks;
  const Nccl nccl;
  ncclUniqueId id;
};

class Rank {
 public:
  Rank(Shared& shared, int rank)
      : shared_(shared), rank_(rank), context_(rank % cuda::device_count()), current_(context_) {
    shared.nccl.require(shared.nccl.init(&comm_, shared.ranks.size(), shared.id, rank));
  }
  ~Rank() { shared_.nccl.destroy(comm_); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Returns this rank's times in microseconds.
  std::vector<double> run(const Order& order) {
    Buffers buffers(order.layout, rank_);
    DeviceSide device(rank_, buffers.input.size() * sizeof(float),
                      buffers.output.size() * sizeof(float));
    std::vector<double> times;
    for (int i = 0; i < order.warm_up + order.timed; ++i) {
      device.write_input(std::as_bytes(std::span(buffers.pristine)));
      shared_.ranks.meet();
      device.begin_timing();
      shared_.nccl.require(call(order.layout, device));
      const double time = device.end_timing();
      if (i >= order.warm_up) times.push_back(time);
    }
    device.read_output(std::as_writable_bytes(std::span(buffers.output)));
    buffers.check(order.layout, rank_);
    return times;
  }

 private:
  ncclResult_t call(const Layout& layout, const DeviceSide& device) const {
    const Nccl& nccl = shared_.nccl;
    const void* const in = device.input();
    void* const out = device.output();
    auto* const stream = static_cast<cudaStream_t>(device.stream().handle);
    const size_t n = layout.count;
    switch (layout.collective) {
      case Collective::all_reduce:
        return nccl.all_reduce(in, out, n, ncclFloat32, ncclSum, comm_, stream);
      case Collective::all_gather:
        return nccl.all_gather(in, out, n, ncclFloat32, comm_, stream);
      case Collective::reduce_scatter:
        return nccl.reduce_scatter(in, out, n, ncclFloat32, ncclSum, comm_, stream);
      case Collective::broadcast:
        return nccl.broadcast(in, out, n, ncclFloat32, 0, comm_, stream);
      case Collective::reduce:
        return nccl.reduce(in, out, n, ncclFloat32, ncclSum, 0, comm_, stream);
      case Collective::all_to_all:
        return nccl.all_to_all(in, out, n, ncclFloat32, comm_, stream);
      case Collective::gather:
        return nccl.gather(in, out, n, ncclFloat32, 0, comm_, stream);
      case Collective::scatter:
        return nccl.scatter(in, out, n, ncclFloat32, 0, comm_, stream);
      default:
        throw Error(ErrorCode::unsupported, cat("NCCL has no ", name(layout.collective)));
    }
  }

  Shared& shared_;
  const int rank_;
  const cuda::Context context_;
  const cuda::CurrentContext current_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

}  // namespace tutti::bench

int main(int argc, char** argv) {
  using namespace tutti::bench;
  const int count = argc == 3 ? std::atoi(argv[2]) : 0;
  if (count < 1) return 2;
  try {
    Shared shared(count);
    return shared.ranks.serve(argv[1], [&](int rank) -> RankThreads::Runner {
      const auto own = std::make_shared<Rank>(shared, rank);
      return [own](const Order& order) { return own->run(order); };
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
