// Tests buffers that other ranks read in place, in calls that fail. The caller may reuse its
// buffers as soon as the call has ended. A rank that is still reading must not use what it reads
// afterwards.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

constexpr size_t kCount = 4096;

// A signal that is given once, between ranks that are threads or processes.
class Signal {
 public:
  Signal() {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe");
    out_ = Fd(ends[0]);
    in_ = Fd(ends[1]);
  }
  void send() const {
    if (::write(in_.get(), "!", 1) != 1) throw std::runtime_error("write to a pipe");
  }
  void wait() const {
    char byte = 0;
    if (::read(out_.get(), &byte, 1) != 1) throw std::runtime_error("read from a pipe");
  }

 private:
  Fd out_;
  Fd in_;
};

struct Signals {
  Signal reads;        // the reader is reading, or may begin to read
  Signal overwritten;  // the owner has overwritten its buffer
  Signal read;         // the reader has read the whole buffer
};

Reduction sum_that_first(std::function<void()> begin) {
  auto first = std::make_shared<bool>(true);
  const auto add = [first, begin = std::move(begin)](void* dst, const void* a, const void* b,
                                                     uint64_t count, DType) {
    const auto* const left = static_cast<const float*>(a);
    const auto* const right = static_cast<const float*>(b);
    for (uint64_t i = 0; i < count; ++i) {
      static_cast<float*>(dst)[i] = left[i] + right[i];
      if (std::exchange(*first, false)) begin();
    }
  };
  return Reduction::user(std::make_shared<const UserOp>(UserOp{.combine = add}));
}

// Rank 0 lends its input to rank 1, which stops after it has read the first element. Meanwhile rank
// 0 gives up, and overwrites the buffer.
void be_owner(Communicator& comm, const Signals& signals) {
  const Memory<float> values = comm.allocate<float>(kCount);
  const std::span<float> input(values.get(), kCount);
  std::ranges::fill(input, 1.0F);
  Work work = comm.reduce_async(as_const(buffer_of(input)), {}, sum_that_first([] {}), 1);
  signals.reads.wait();
  comm.abort("it has something better to do");
  EXPECT_THROW(work.wait(), Error);
  std::ranges::fill(input, 100.0F);
  signals.overwritten.send();
  signals.read.wait();
  EXPECT_EQ(std::ranges::count(input, 100.0F), kCount) << "the reader has written into it";
}

enum class End : uint8_t { error, right, wrong };

End be_reader(Communicator& comm, const Signals& signals) {
  const std::vector<float> input(kCount, 2);
  std::vector<float> result(kCount);
  End end = End::error;
  try {
    const Reduction sum = sum_that_first([&] {
      signals.reads.send();
      signals.overwritten.wait();
    });
    comm.reduce(const_buffer_of(std::span(input)), buffer_of(std::span(result)), sum, 1);
    end = std::ranges::count(result, 3.0F) == kCount ? End::right : End::wrong;
  } catch (const Error&) {
    end = End::error;
  }
  signals.read.send();
  return end;
}

TEST(LendingAbort, AReaderOfAnOverwrittenLoanFails) {
  const Signals signals;
  testing::run_ranks(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    if (job.rank == 0) return be_owner(comm, signals);
    EXPECT_EQ(be_reader(comm, signals), End::error);
  });
}

TEST(LendingAbort, AReaderInAnotherProcessFailsToo) {
  const Signals signals;
  testing::LocalRendezvous rendezvous;
  const Job reader = rendezvous.job(1, 2);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(rendezvous.release_listener());
    int code = 100;
    try {
      Communicator comm = Communicator::init(reader);
      code = static_cast<int>(be_reader(comm, signals));
    } catch (...) {
    }
    ::_exit(code);
  }
  {
    Communicator comm = Communicator::init(rendezvous.job(0, 2));
    be_owner(comm, signals);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(End::error));
}

// Starts a rank as a separate process. Returns its process ID.
pid_t start_rank(testing::LocalRendezvous& rendezvous, int rank, int ranks,
                 const std::function<bool(Communicator&)>& body) {
  const Job job = rendezvous.job(rank, ranks);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::close(rendezvous.release_listener());
  bool right = false;
  try {
    Communicator comm = Communicator::init(job);
    right = body(comm);
  } catch (const std::exception& error) {
    std::fputs(error.what(), stderr);
  }
  ::_exit(right ? 0 : 1);
}

void expect_success(pid_t pid) {
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// While its owner is stopped, a loan can be read, even by a rank that has not read any memory of
// this owner before.
TEST(Lending, AReaderNeedsNothingFromAStoppedOwner) {
  const Signals signals;
  testing::LocalRendezvous rendezvous;
  const pid_t reader = start_rank(rendezvous, 1, 2, [&](Communicator& comm) {
    std::vector<float> result(kCount);
    signals.reads.wait();
    comm.broadcast(std::span(result), 0);
    signals.read.send();
    return std::ranges::count(result, 1.0F) == kCount;
  });
  const pid_t owner = ::fork();
  if (owner == 0) {
    bool right = false;
    try {
      Communicator comm = Communicator::init(rendezvous.job(0, 2));
      const Memory<float> values = comm.allocate<float>(kCount);
      std::fill_n(values.get(), kCount, 1.0F);
      const Buffer buffer = buffer_of(std::span(values.get(), kCount));
      Work work = comm.broadcast_async(as_const(buffer), buffer, 0);
      ::raise(SIGSTOP);
      work.wait();
      right = true;
    } catch (const std::exception& error) {
      std::fputs(error.what(), stderr);
    }
    ::_exit(right ? 0 : 1);
  }
  ::close(rendezvous.release_listener());
  int status = 0;
  ASSERT_EQ(::waitpid(owner, &status, WUNTRACED), owner);
  ASSERT_TRUE(WIFSTOPPED(status));
  signals.reads.send();
  signals.read.wait();
  ASSERT_EQ(::kill(owner, SIGCONT), 0);
  expect_success(owner);
  expect_success(reader);
}

// If there is too little address space to map loans of other ranks, calls are slower but correct.
TEST(Lending, MessagesAreCopiedIfAddressesRunOut) {
  constexpr size_t kMuch = 256 << 20;
  constexpr size_t kLeft = 64 << 20;
  testing::LocalRendezvous rendezvous;
  const pid_t reader = start_rank(rendezvous, 1, 2, [&](Communicator& comm) {
    std::ifstream statm("/proc/self/statm");
    uint64_t pages = 0;
    statm >> pages;
    const rlim_t most = pages * 4096 + kLeft;
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) return false;
    std::vector<float> result(kCount, 2);
    const Buffer buffer = buffer_of(std::span(result));
    comm.broadcast(as_const(buffer), buffer, 0);
    const bool right = std::ranges::count(result, 1.0F) == kCount;
    comm.all_reduce(as_const(buffer), buffer);
    return right && std::ranges::count(result, 2.0F) == kCount;
  });
  {
    Communicator comm = Communicator::init(rendezvous.job(0, 2));
    const Memory<float> values = comm.allocate<float>(kMuch);
    const Buffer buffer = buffer_of(std::span(values.get(), kCount));
    std::fill_n(values.get(), kCount, 1.0F);
    comm.broadcast(as_const(buffer), buffer, 0);
    comm.all_reduce(as_const(buffer), buffer);
    EXPECT_EQ(std::count(values.get(), values.get() + kCount, 2.0F), kCount);
  }
  expect_success(reader);
}

}  // namespace
}  // namespace tutti
