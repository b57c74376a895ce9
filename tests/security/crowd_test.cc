// Tests strangers that flood the listener of a job, or that are other users of its host.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"
#include "transport/bootstrap/control/descriptor_service.h"
#include "transport/bootstrap/handshake/handshake.h"
#include "transport/bootstrap/handshake/socket.h"
#include "transport/message.h"

namespace tutti {
namespace {

using ::testing::Each;
using testing::LocalRendezvous;
using testing::run_jobs_catching;

constexpr std::chrono::seconds kPatience{20};
constexpr int kConnections = 10'000;
constexpr size_t kOpenAtATime = 900;
constexpr uid_t kAnotherUser = 65534;

std::vector<std::string> texts(const std::vector<std::optional<Error>>& errors) {
  std::vector<std::string> texts;
  for (const auto& error : errors) texts.push_back(error ? error->what() : "");
  return texts;
}

// Returns the bytes that one stranger sends.
std::string words(int number) {
  const bootstrap::Hello hello{.version = kWireVersion, .rank = 1, .size = 4};
  const std::string forged(reinterpret_cast<const char*>(&hello), sizeof(hello));
  switch (number % 5) {
    case 0:
      return "";
    case 1:
      return "GET / HTTP/1.1\r\nHost: " + std::string(4096, 'x');
    case 2:
      return forged.substr(0, 1);  // the first byte of a Hello, and nothing else
    case 3:
      return forged;
    default:
      return std::string("\xff\xff\xff\x7f", 4) + std::string(8192, '\0');  // as a frame: 2 GB
  }
}

void crowd(uint16_t port) {
  const bootstrap::SocketAddress door = bootstrap::resolve("127.0.0.1", port).front();
  std::deque<Fd> open;
  for (int i = 0; i < kConnections; ++i) {
    Fd socket;
    if (bootstrap::try_connect(door, Deadline::after(kPatience), socket) != 0) continue;
    const std::string text = words(i);
    [[maybe_unused]] const ssize_t said =
        ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    open.push_back(std::move(socket));
    if (open.size() > kOpenAtATime) open.pop_front();
  }
}

// Runs in a child process; the destructor waits for its end.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body());
  }
  ~Child() {
    if (!code_) wait(0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool ended() {
    if (!code_) wait(WNOHANG);
    return code_.has_value();
  }
  int code() {
    if (!code_) wait(0);
    return *code_;
  }

 private:
  void wait(int options) {
    int status = 0;
    if (::waitpid(pid_, &status, options) == pid_) code_ = WEXITSTATUS(status);
  }

  const pid_t pid_;
  std::optional<int> code_;
};

// The crowd attacks while the job forms and while it computes.
TEST(Crowd, CrowdDoesNotDisturbTheJob) {
  LocalRendezvous rendezvous;
  Child attacker([&] {
    crowd(rendezvous.port());
    return 0;
  });
  std::vector<Job> jobs;
  for (int rank = 0; rank < 4; ++rank) jobs.push_back(rendezvous.job(rank, 4));
  int calls = 0;
  const auto errors = run_jobs_catching(jobs, [&](const Job& job) {
    Communicator world = Communicator::init(job);
    for (float over = 0; over == 0; calls += job.rank == 0 ? 1 : 0) {
      std::vector<float> sums = {1, job.rank == 0 && attacker.ended() ? 1.0F : 0.0F};
      world.all_reduce(std::span(sums));
      ASSERT_EQ(sums[0], 4);
      over = sums[1];
    }
  });
  EXPECT_THAT(texts(errors), Each(""));
  EXPECT_GT(calls, 1) << "the crowd had gone before the job was there";
}

TEST(AnotherUser, GetsNothingFromTheUnixSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string name = "tutti-users-test-" + std::to_string(::getpid());
  bootstrap::DescriptorService service(name, 2, 0);
  // Connects as `user`. Returns 0: dropped silently; 1: received an answer; 2: no connection; 3: a
  // sandbox without other users.
  const auto knock = [&](uid_t user) {
    if (::setresuid(user, user, user) != 0) return 3;
    Fd socket;
    const Deadline deadline = Deadline::after(kPatience);
    if (bootstrap::try_connect(bootstrap::unix_address(name), deadline, socket) != 0) return 2;
    std::byte byte{};
    return bootstrap::read_exactly(socket.get(), std::span(&byte, 1), deadline) ==
                   bootstrap::Transfer::closed
               ? 0
               : 1;
  };
  for (const auto& [user, expected] : {std::pair{uid_t{0}, 1}, std::pair{kAnotherUser, 0}}) {
    Child child([&, user = user] { return knock(user); });
    bootstrap::PollSet set;
    while (!child.ended()) {
      service.watch(set);
      set.wake_at(Clock::now() + std::chrono::milliseconds(10));
      set.run();
    }
    if (child.code() == 3) GTEST_SKIP() << "there is no other user here";
    EXPECT_EQ(child.code(), expected) << "user " << user;
  }
}

}  // namespace
}  // namespace tutti
