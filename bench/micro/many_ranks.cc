// Shows what a job of many ranks costs. Starts PROCESSES processes of RANKS / PROCESSES ranks each;
// all ranks join one job, all-reduce, split and leave. Prints the time and the memory per rank of
// each phase, and the number of messages of the join:
//
//   bazel-bin/bench/micro/many_ranks [RANKS [PROCESSES]]
//
// The transport is that of TUTTI_TRANSPORT. Fails if a sum is wrong.
#include <fcntl.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/descriptor_limit.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/process_memory.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "collectives/group.h"
#include "transport/bootstrap/control/init_stats.h"
#include "transport/bootstrap/discovery/job.h"

namespace tutti::bench {
namespace {

constexpr int kReductions = 5;
constexpr int kMostGroups = 8;  // communicators that the split makes

// Memory of a process in bytes, by kind.
struct Memory {
  int64_t all = 0;     // proportional set size
  int64_t heap = 0;    // allocated by malloc()
  int64_t shared = 0;  // this process's share of memory files

  Memory operator-(const Memory& other) const {
    return {all - other.all, heap - other.heap, shared - other.shared};
  }
  Memory& operator+=(const Memory& other) {
    all += other.all;
    heap += other.heap;
    shared += other.shared;
    return *this;
  }
};

// Sums the proportional set sizes of mappings of memory files.
int64_t share_of_memory_files() {
  std::ifstream lines("/proc/self/smaps");
  int64_t sum = 0;
  bool counts = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("/memfd:") != std::string::npos) {
      counts = true;
    } else if (counts && line.starts_with("Pss:")) {
      sum += std::strtoll(line.c_str() + 4, nullptr, 10) * 1024;
      counts = false;
    }
  }
  return sum;
}

Memory memory_now() {
  const struct mallinfo2 heap = ::mallinfo2();
  return {.all = proportional_set_size(),
          .heap = static_cast<int64_t>(heap.uordblks + heap.hblkhd),
          .shared = share_of_memory_files()};
}

// Report of a process at the end of a phase. It has a fixed size, so that one write to a pipe sends
// it.
struct Report {
  Memory memory;  // increase since the process started
  double seconds = 0;
  // number of messages that all ranks of the process sent and received while joining
  uint64_t messages = 0;
  uint64_t most_messages = 0;      // largest number of messages of a rank other than 0
  uint64_t messages_of_first = 0;  // messages of rank 0
  bool good = true;
};

enum Phase : uint8_t { join, reduce, split, leave, kPhases };

struct Pipe {
  Fd read;
  Fd write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error("pipe", errno);
  return {Fd(ends[0]), Fd(ends[1])};
}

// The ranks of one process.
class Ranks {
 public:
  Ranks(int first, int count, Job job) : first_(first), count_(count), job_(std::move(job)) {}

  void run(Phase phase, Report& report) {
    if (phase == join) return join_all(report);
    if (phase == reduce) return reduce_all(world_, report);
    if (phase == split) return split_all(report);
    leave_all();
  }

 private:
  void join_all(Report& report) {
    std::vector<std::future<Communicator>> joining;
    for (int i = 0; i < count_; ++i) {
      Job job = job_;
      job.rank = first_ + i;
      joining.push_back(Communicator::init_async(job));
    }
    for (auto& one : joining) world_.push_back(one.get());
    for (const Communicator& one : world_) {
      const InitStats& stats = one.init_stats();
      const uint64_t messages = stats.sent.messages + stats.received.messages;
      report.messages += messages;
      if (one.rank() == 0) {
        report.messages_of_first = messages;
      } else {
        report.most_messages = std::max(report.most_messages, messages);
      }
    }
  }

  // All-reduces rank numbers and checks the sums. The ranks of `all` may be in different
  // communicators.
  void reduce_all(std::vector<Communicator>& all, Report& report) const {
    for (int round = 0; round < kReductions; ++round) {
      std::vector<int64_t> sums(all.size());
      group_begin();
      for (size_t i = 0; i < all.size(); ++i) {
        sums[i] = all[i].rank() + round;
        all[i].all_reduce(std::span(&sums[i], 1));
      }
      group_end();
      for (size_t i = 0; i < all.size(); ++i) {
        const int64_t size = all[i].size();
        report.good &= sums[i] == size * (size - 1) / 2 + round * size;
      }
    }
  }

  // Runs body(i) for each rank in a thread of its own.
  void for_each_rank(const std::function<void(size_t i)>& body) const {
    std::vector<std::future<void>> running;
    for (size_t i = 0; i < static_cast<size_t>(count_); ++i) {
      running.push_back(std::async(std::launch::async, body, i));
    }
    for (auto& one : running) one.get();
  }

  void split_all(Report& report) {
    parts_.resize(world_.size());
    const int groups = std::min(kMostGroups, job_.size);
    for_each_rank([&](size_t i) { parts_[i] = world_[i].split(world_[i].rank() % groups); });
    for (size_t i = 0; i < parts_.size(); ++i) {
      const int first = world_[i].rank() % groups;  // first rank of this part in the world
      report.good &= parts_[i].size() == (job_.size - first + groups - 1) / groups;
    }
    reduce_all(parts_, report);
  }

  void leave_all() {
    for_each_rank([&](size_t i) {
      parts_[i] = {};
      world_[i] = {};
    });
  }

  const int first_;
  const int count_;
  const Job job_;
  std::vector<Communicator> world_;
  std::vector<Communicator> parts_;
};

struct Process {
  pid_t pid = 0;
  Pipe go;
  Pipe reports;
};

void serve(Ranks ranks, const Process& self) {
  reserve_descriptors(1 << 14);
  const Memory before = memory_now();
  for (int phase = 0; phase < kPhases; ++phase) {
    char go = 0;
    if (::read(self.go.read.get(), &go, 1) != 1) return;
    Report report;
    const int64_t start = now_ns();
    ranks.run(static_cast<Phase>(phase), report);
    report.seconds = static_cast<double>(now_ns() - start) / 1e9;
    report.memory = memory_now() - before;
    if (::write(self.reports.write.get(), &report, sizeof(report)) != sizeof(report)) return;
  }
}

Process start(int first, int count, const Job& job) {
  Process process{.go = make_pipe(), .reports = make_pipe()};
  process.pid = ::fork();
  if (process.pid < 0) throw system_error("fork", errno);
  if (process.pid > 0) {
    process.go.read.reset();
    process.reports.write.reset();
    return process;
  }
  process.go.write.reset();
  bool good = true;
  try {
    serve(Ranks(first, count, job), process);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ranks %d to %d: %s\n", first, first + count - 1, error.what());
    good = false;
  }
  ::_exit(good ? 0 : 1);
}

Report run_phase(const std::vector<Process>& processes) {
  for (const Process& process : processes) {
    if (::write(process.go.write.get(), "", 1) != 1) throw system_error("write to a pipe", errno);
  }
  Report all;
  for (const Process& process : processes) {
    Report one;
    if (::read(process.reports.read.get(), &one, sizeof(one)) != sizeof(one)) {
      throw Error(ErrorCode::rank_died, "a process of ranks ended early");
    }
    all.memory += one.memory;
    all.seconds = std::max(all.seconds, one.seconds);
    all.messages += one.messages;
    all.most_messages = std::max(all.most_messages, one.most_messages);
    all.messages_of_first += one.messages_of_first;
    all.good = all.good && one.good;
  }
  return all;
}

void print(const char* phase, const Report& report, int ranks) {
  const auto each = [&](int64_t bytes) { return static_cast<double>(bytes) / 1024 / ranks; };
  const Memory& memory = report.memory;
  std::printf("%-14s %9.2f %12.1f %9.1f %9.1f %9.1f\n", phase, report.seconds, each(memory.all),
              each(memory.heap), each(memory.shared),
              each(memory.all - memory.heap - memory.shared));
  std::fflush(stdout);
}

bool run(int ranks, int count) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / cat("tutti-many-", ::getpid());
  Job job;
  job.size = ranks;
  job.rendezvous_file = file.string();
  job.token = "many ranks in few processes of one machine";
  job.init_timeout = std::chrono::minutes(10);
  std::vector<Process> processes;
  for (int i = 0; i < count; ++i) {
    const int first = static_cast<int>(int64_t{ranks} * i / count);
    const int end = static_cast<int>(int64_t{ranks} * (i + 1) / count);
    processes.push_back(start(first, end - first, job));
  }
  std::printf("%d ranks in %d processes\n", ranks, count);
  std::printf("%-14s %9s %12s %9s %9s %9s\n", "", "seconds", "KiB a rank", "heap", "shared",
              "rest");
  bool good = true;
  constexpr std::array<const char*, kPhases> kNames = {"join", "5 all-reduces", "split", "leave"};
  Report joined;
  for (int phase = 0; phase < kPhases; ++phase) {
    const Report report = run_phase(processes);
    print(kNames[static_cast<size_t>(phase)], report, ranks);
    if (phase == join) joined = report;
    good = good && report.good;
  }
  std::printf("messages of the join: %.1f a rank, at most %lu, rank 0 %lu\n",
              static_cast<double>(joined.messages) / ranks,
              static_cast<unsigned long>(joined.most_messages),
              static_cast<unsigned long>(joined.messages_of_first));
  for (const Process& process : processes) {
    int status = 0;
    ::waitpid(process.pid, &status, 0);
    good = good && status == 0;
  }
  std::filesystem::remove(file);
  return good;
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 256;
  const int processes = argc > 2 ? std::atoi(argv[2]) : std::max(1, ranks / 256);
  if (argc > 3 || processes < 1 || ranks < std::max(2, processes)) {
    std::fprintf(stderr, "usage: many_ranks [RANKS [PROCESSES]]\n");
    return 2;
  }
  try {
    if (tutti::bench::run(ranks, processes)) return 0;
    std::fprintf(stderr, "many_ranks: a sum is wrong, or a process failed\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "many_ranks: %s\n", error.what());
  }
  return 1;
}
