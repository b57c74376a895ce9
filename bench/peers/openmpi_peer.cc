// Open MPI's side of `tutti bench --peers openmpi`: does what it is told over a socket, and blocks
// (without spinning) while it is Tutti's turn.
//
//   openmpi_peer SOCKET-NAME      (an abstract unix socket; started by mpirun)
//   ← all_reduce BYTES WARM-UP TIMED   of float32, sum
//   → rank 0: T1 T2 ... (microseconds, of the slowest rank)
#include <mpi.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

int connect_to(const std::string& name) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (fd < 0 || name.size() + 1 > sizeof(address.sun_path)) return -1;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return ::connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 ? fd : -1;
}

std::vector<double> run(size_t bytes, int warm_up, int timed) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const size_t count = bytes / sizeof(float);
  std::vector<float> pristine(count, static_cast<float>(rank + 1));
  std::vector<float> input(count);
  std::vector<float> output(count);
  std::vector<double> times;
  for (int i = 0; i < warm_up + timed; ++i) {
    if (count > 0) std::memcpy(input.data(), pristine.data(), count * sizeof(float));
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(input.data(), output.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    const double end = MPI_Wtime();
    if (i >= warm_up) times.push_back((end - start) * 1e6);
  }
  std::vector<double> slowest(times.size());
  MPI_Allreduce(times.data(), slowest.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  return slowest;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int fd = argc == 2 ? connect_to(argv[1]) : -1;
  if (fd < 0) {
    std::fprintf(stderr, "openmpi_peer: cannot reach the socket of tutti bench\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const std::string hello = std::to_string(rank) + "\n";
  if (::write(fd, hello.data(), hello.size()) < 0) MPI_Abort(MPI_COMM_WORLD, 1);
  std::string line;
  for (char c = 0; ::read(fd, &c, 1) == 1;) {
    if (c != '\n') {
      line += c;
      continue;
    }
    std::istringstream words(line);
    std::string collective;
    size_t bytes = 0;
    int warm_up = 0;
    int timed = 0;
    words >> collective >> bytes >> warm_up >> timed;
    line.clear();
    std::ostringstream reply;
    for (const double time : run(bytes, warm_up, timed)) reply << time << ' ';
    reply << '\n';
    if (rank == 0 && ::write(fd, reply.str().data(), reply.str().size()) < 0) break;
  }
  MPI_Finalize();
  return 0;
}
