#include "bench/peers/peer_program.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "bench/pattern.h"

namespace tutti::bench {

namespace {

Fd connect_to(const std::string& name) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof(address.sun_path))
    errno = ENAMETOOLONG;
  else
    std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (!socket || name.size() + 1 > sizeof(address.sun_path) ||
      ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    throw system_error("connect to the socket of tutti bench", errno);
  }
  return socket;
}

void write_line(const Fd& socket, const std::string& text) {
  const std::string line = text + '\n';
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = ::send(socket.get(), line.data() + done, line.size() - done, MSG_NOSIGNAL);
    if (n < 0) throw system_error("communicate with tutti bench", errno);
    done += n;
  }
}

void bind_to(const std::vector<int>& pus) {
  if (pus.empty()) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int pu : pus) CPU_SET(pu, &cpus);
  ::sched_setaffinity(0, sizeof cpus, &cpus);
}

int run_body(int rank, const std::function<void(int)>& body) {
  try {
    body(rank);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

}  // namespace

Orders::Orders(const std::string& socket_name, int rank, int ranks)
    : ranks_(ranks), socket_(connect_to(socket_name)) {
  write_line(socket_, cat(rank));
}

std::optional<Order> Orders::next() {
  std::string line;
  for (char c = 0; c != '\n'; line += c) {
    if (::read(socket_.get(), &c, 1) != 1) return std::nullopt;
  }
  std::istringstream words(line);
  std::string collective;
  Order order;
  order.layout.ranks = ranks_;
  words >> collective >> order.layout.count >> order.warm_up >> order.timed;
  order.layout.collective = parse_collective(collective).value();
  return order;
}

void Orders::reply(const std::vector<double>& times) {
  std::ostringstream words;
  for (const double time : times) words << time << ' ';
  write_line(socket_, words.str());
}

Buffers::Buffers(const Layout& layout, int rank)
    : pristine(layout.inputs(rank)), input(pristine.size()), output(layout.outputs(rank)) {
  fill_input(Data::exact, DType::f32, ReduceOp::sum, layout, rank, pristine.data());
}

void Buffers::check(const Layout& layout, int rank) const {
  if (output_parts(layout, rank).empty()) return;
  const std::vector<std::byte> expected =
      expected_output(Data::exact, DType::f32, ReduceOp::sum, layout, rank);
  const uint64_t wrong = count_wrong(DType::f32, output.data(), expected.data(), output.size());
  if (wrong == 0) return;
  throw Error(ErrorCode::internal, cat(name(layout.collective), " of ", layout.count,
                                       " elements has ", wrong, " wrong elements"));
}

int run_ranks(int ranks, const std::vector<std::vector<int>>& binding,
              const std::function<void(int rank)>& body) {
  std::vector<pid_t> children;
  int code = 0;
  const auto end_all = [&] {
    code = 1;
    for (const pid_t child : children) ::kill(child, SIGKILL);
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (!binding.empty()) bind_to(binding[rank]);
      ::_exit(run_body(rank, body));
    }
    if (child < 0) {
      std::perror("fork");
      end_all();
      break;
    }
    children.push_back(child);
  }
  for (int status = 0; ::wait(&status) > 0;) {
    if (status == 0 || code != 0) continue;
    if (WIFSIGNALED(status)) std::fprintf(stderr, "a rank died: %s\n", strsignal(WTERMSIG(status)));
    end_all();
  }
  return code;
}

}  // namespace tutti::bench
