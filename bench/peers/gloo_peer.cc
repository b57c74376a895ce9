// Gloo's side of `tutti bench --peers gloo`, over TCP on the loopback interface, Gloo's transport
// between processes of one host.
//
//   gloo_peer SOCKET-NAME RANKS
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "bench/peers/peer_program.h"

namespace tutti::bench {

namespace {

namespace fs = std::filesystem;

using Context = std::shared_ptr<gloo::Context>;
using Function = void (*)(void*, const void*, const void*, size_t);

constexpr Function kSum = &gloo::sum<float>;
constexpr Function kMax = &gloo::max<double>;

// The rendezvous directory of the ranks; the destructor removes it.
class MeetingPlace {
 public:
  MeetingPlace() : path_(fs::temp_directory_path() / "gloo-peer.XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw system_error(cat("mkdtemp ", path_), errno);
  }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;
  ~MeetingPlace() { remove(); }

  const std::string& path() const { return path_; }
  void remove() const {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

 private:
  std::string path_;
};

void barrier(const Context& context) {
  gloo::BarrierOptions options(context);
  gloo::barrier(options);
}

Context meet(int rank, int ranks, const MeetingPlace& place) {
  auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(place.path());
  context->connectFullMesh(store, device);
  barrier(context);
  if (rank == 0) place.remove();  // all ranks are connected, so the files are no longer needed
  return context;
}

// Options of the collectives with one input, one output and optionally a root.
template <typename Options>
std::shared_ptr<Options> options_for(const Context& context, Buffers& buffers) {
  auto options = std::make_shared<Options>(context);
  if (!buffers.input.empty()) options->setInput(buffers.input.data(), buffers.input.size());
  if (!buffers.output.empty()) options->setOutput(buffers.output.data(), buffers.output.size());
  if constexpr (requires { options->setRoot(0); }) options->setRoot(0);
  if constexpr (requires { options->setReduceFunction(kSum); }) options->setReduceFunction(kSum);
  return options;
}

std::function<void()> scatter(const Context& context, const Layout& layout, Buffers& buffers) {
  auto options = std::make_shared<gloo::ScatterOptions>(context);
  std::vector<float*> blocks;
  for (size_t i = 0; i < buffers.input.size(); i += layout.count) {
    blocks.push_back(&buffers.input[i]);
  }
  if (!blocks.empty()) options->setInputs(blocks, layout.count);
  options->setOutput(buffers.output.data(), layout.count);
  options->setRoot(0);
  return [options] { gloo::scatter(*options); };
}

// Returns the call to time.
std::function<void()> prepare(const Context& context, const Layout& layout, Buffers& buffers) {
  if (layout.collective == Collective::barrier) return [context] { barrier(context); };
  if (layout.count == 0) return [] {};
  switch (layout.collective) {
    case Collective::all_reduce:
      return [o = options_for<gloo::AllreduceOptions>(context, buffers)] { gloo::allreduce(*o); };
    case Collective::all_gather:
      return [o = options_for<gloo::AllgatherOptions>(context, buffers)] { gloo::allgather(*o); };
    case Collective::broadcast:
      return [o = options_for<gloo::BroadcastOptions>(context, buffers)] { gloo::broadcast(*o); };
    case Collective::reduce:
      return [o = options_for<gloo::ReduceOptions>(context, buffers)] { gloo::reduce(*o); };
    case Collective::gather:
      return [o = options_for<gloo::GatherOptions>(context, buffers)] { gloo::gather(*o); };
    case Collective::scatter:
      return scatter(context, layout, buffers);
    case Collective::all_to_all:
      return [o = options_for<gloo::AlltoallOptions>(context, buffers)] { gloo::alltoall(*o); };
    case Collective::reduce_scatter: {
      const int total = static_cast<int>(buffers.input.size());
      auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
          context, std::vector<float*>{buffers.input.data()}, total,
          std::vector<int>(layout.ranks, static_cast<int>(layout.count)));
      return [algorithm] { algorithm->run(); };
    }
    default:
      throw Error(ErrorCode::unsupported, cat("Gloo has no ", name(layout.collective)));
  }
}

std::vector<double> slowest(const Context& context, std::vector<double> times) {
  gloo::AllreduceOptions options(context);
  options.setOutput(times.data(), times.size());
  options.setReduceFunction(kMax);
  gloo::allreduce(options);
  return times;
}

std::vector<double> run(const Context& context, const Order& order) {
  Buffers buffers(order.layout, context->rank);
  // In Gloo every rank reduces into its output.
  if (order.layout.collective == Collective::reduce) buffers.output.resize(order.layout.count);
  const std::function<void()> call = prepare(context, order.layout, buffers);
  const std::vector<double> times = time_calls(
      order, [&] { buffers.rewrite_input(); }, [&] { barrier(context); }, call);
  // Gloo's reduce_scatter works in place
  if (order.layout.collective == Collective::reduce_scatter) {
    std::copy_n(buffers.input.begin(), order.layout.count, buffers.output.begin());
  }
  buffers.output.resize(order.layout.outputs(context->rank));
  buffers.check(order.layout, context->rank);
  return slowest(context, times);
}

}  // namespace

}  // namespace tutti::bench

int main(int argc, char** argv) {
  using namespace tutti::bench;
  const int ranks = argc == 3 ? std::atoi(argv[2]) : 0;
  if (ranks < 1) return 2;
  const MeetingPlace place;
  // Ranks are not bound to cores, because each has a second thread for its sockets.
  return run_ranks(ranks, {}, [&](int rank) {
    Orders orders(argv[1], rank, ranks);
    const Context context = meet(rank, ranks, place);
    while (const std::optional<Order> order = orders.next()) {
      const std::vector<double> times = run(context, *order);
      if (rank == 0) orders.reply(times);
    }
  });
}
