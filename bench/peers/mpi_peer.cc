// An MPI library's side of `tutti bench --peers`; built once per library.
//
//   openmpi_peer SOCKET-NAME      (or mpich_peer; started by the library's own mpirun)
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "bench/peers/peer_program.h"

namespace tutti::bench {

namespace {

const MPI_Comm kWorld = MPI_COMM_WORLD;

// Calls the collective with root 0.
void call(const Layout& layout, const float* in, float* out) {
  const int count = static_cast<int>(layout.count);
  switch (layout.collective) {
    case Collective::all_reduce:
      MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, kWorld);
      return;
    case Collective::all_gather:
      MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, kWorld);
      return;
    case Collective::reduce_scatter:
      MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, kWorld);
      return;
    case Collective::broadcast:  // `out` is the buffer, on the root too
      MPI_Bcast(out, count, MPI_FLOAT, 0, kWorld);
      return;
    case Collective::reduce:
      MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, 0, kWorld);
      return;
    case Collective::gather:
      MPI_Gather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, 0, kWorld);
      return;
    case Collective::scatter:
      MPI_Scatter(in, count, MPI_FLOAT, out, count, MPI_FLOAT, 0, kWorld);
      return;
    case Collective::all_to_all:
      MPI_Alltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, kWorld);
      return;
    case Collective::scan:
      MPI_Scan(in, out, count, MPI_FLOAT, MPI_SUM, kWorld);
      return;
    case Collective::exscan:
      MPI_Exscan(in, out, count, MPI_FLOAT, MPI_SUM, kWorld);
      return;
    case Collective::barrier:
      MPI_Barrier(kWorld);
      return;
    case Collective::send_recv:
      break;
  }
  throw Error(ErrorCode::unsupported, cat("no ", name(layout.collective), " here"));
}

std::vector<double> run(const Order& order, int rank) {
  if (order.layout.count > INT32_MAX) {
    throw Error(ErrorCode::unsupported, "MPI counts elements in an int",
                {.remedy = "use smaller sizes"});
  }
  Buffers buffers(order.layout, rank);
  // MPI broadcasts in place.
  const bool in_place = order.layout.collective == Collective::broadcast;
  std::vector<float>& written = in_place ? buffers.output : buffers.input;
  const std::vector<double> times = time_calls(
      order, [&] { std::ranges::copy(buffers.pristine, written.begin()); },
      [] { MPI_Barrier(kWorld); },
      [&] { call(order.layout, buffers.input.data(), buffers.output.data()); });
  buffers.check(order.layout, rank);
  std::vector<double> slowest(times.size());
  MPI_Allreduce(times.data(), slowest.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX,
                kWorld);
  return slowest;
}

void serve(const std::string& socket_name) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(kWorld, &rank);
  MPI_Comm_size(kWorld, &ranks);
  Orders orders(socket_name, rank, ranks);
  while (const std::optional<Order> order = orders.next()) {
    const std::vector<double> times = run(*order, rank);
    if (rank == 0) orders.reply(times);
  }
}

}  // namespace

}  // namespace tutti::bench

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  MPI_Init(&argc, &argv);
  try {
    tutti::bench::serve(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
