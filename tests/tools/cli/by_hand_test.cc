// Tests ranks started by hand with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: strangers on the
// port, other jobs, and inconsistent numbers. No rank may hang.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "tests/tools/cli/cli.h"

namespace tutti::tool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Listens on a free port of 127.0.0.1.
struct Stranger {
  Stranger() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket.get(), raw, length) != 0 || ::listen(socket.get(), 16) != 0 ||
        ::getsockname(socket.get(), raw, &length) != 0) {
      throw system_error("a listening socket", errno);
    }
    port = ntohs(address.sin_port);
  }
  Fd socket;
  uint16_t port = 0;
};

std::string garbage(size_t bytes) {
  std::minstd_rand random(7);
  std::string text(bytes, '\0');
  for (char& byte : text) byte = static_cast<char>(random());
  return text;
}

// Connects as soon as there is a listener.
Fd connect_to(uint16_t port) {
  const sockaddr_in address = loopback(port);
  const Deadline deadline = Deadline::after(testing::kPatience);
  while (!deadline.passed()) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "nobody listens on port " << port;
  return {};
}

class ByHand : public Cli {
 protected:
  // `more` overrides the variables set by the other parameters.
  Process rank(int rank, int ranks, uint16_t port, Process::Environment more = {}) const {
    Process::Environment environment = std::move(more);
    environment.merge(Process::Environment{{"RANK", cat(rank)},
                                           {"WORLD_SIZE", cat(ranks)},
                                           {"MASTER_ADDR", "127.0.0.1"},
                                           {"MASTER_PORT", cat(port)},
                                           {"TUTTI_TOKEN", "a token that is ours"},
                                           {"TUTTI_INIT_TIMEOUT", "2"}});
    Words command = as_;
    command.insert(command.end(),
                   {tutti(), "bench", "all_reduce", "--max", "1K", "--factor", "128"});
    return start_program(command, std::move(environment));
  }

  static void expect_success(Process& process) {
    const Result result = process.finish();
    EXPECT_EQ(result.code, 0) << result.out << result.err;
  }
  static void expect_failure(Process& process, const std::vector<std::string>& said) {
    const Result result = process.finish();
    EXPECT_EQ(result.code, 1) << result.out << result.err;
    for (const std::string& part : said) EXPECT_THAT(result.err, HasSubstr(part));
  }

  Words as_;  // command that starts the rank's command, such as setpriv; empty: none
  // leaves enough time for all ranks to start after a test's first steps
  const Process::Environment patient_{{"TUTTI_INIT_TIMEOUT", "30"}};
};

TEST_F(ByHand, RanksFindEachOther) {
  const uint16_t port = free_port();
  Process last = rank(2, 3, port, patient_);
  Process first = rank(0, 3, port, patient_);
  Process middle = rank(1, 3, port, patient_);
  const Result result = first.finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("3 ranks"));
  expect_success(middle);
  expect_success(last);
}

// Ranks that must not share memory use TCP.
TEST_F(ByHand, RanksOfTwoUsersUseTcp) {
  const Words as_nobody = {"setpriv",        "--reuid",         "65534",
                           "--clear-groups", "--inh-caps",      "+dac_read_search",
                           "--ambient-caps", "+dac_read_search"};  // to read the program
  Words probe = as_nobody;
  probe.insert(probe.end(), {"sh", "-c", "test $(id -u) -ne " + cat(::geteuid())});
  const Result possible = start_program(probe).finish();
  if (possible.code != 0) GTEST_SKIP() << "cannot become another user: " << possible.err;
  const uint16_t port = free_port();
  Process first = rank(0, 4, port, patient_);
  Process second = rank(1, 4, port, patient_);
  as_ = as_nobody;
  Process third = rank(2, 4, port, patient_);
  Process fourth = rank(3, 4, port, patient_);
  const Result result = first.finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("transport shm+tcp"));
  EXPECT_THAT(result.err, IsQuiet());
  for (Process* other : {&second, &third, &fourth}) expect_success(*other);
}

TEST_F(ByHand, GarbageOnThePortIsDroppedAndLoggedOnce) {
  const uint16_t port = free_port();
  Process first = rank(0, 2, port, patient_);
  const std::string noise = garbage(100000);
  std::vector<Fd> strangers;  // connections that stay open during the job
  for (int i = 0; i < 12; ++i) {
    strangers.push_back(connect_to(port));
    const std::string text = i % 3 == 0 ? "GET / HTTP/1.1\r\nHost: x\r\n\r\n" : noise;
    if (i % 3 != 2) ::send(strangers.back().get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  Process second = rank(1, 2, port, patient_);
  const Result result = first.finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 ranks"));
  EXPECT_THAT(result.err, HasSubstr("warning: dropped a connection from 127.0.0.1"));
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  expect_success(second);
}

TEST_F(ByHand, NamesAnotherProgramOnThePort) {
  const Stranger stranger;
  Process first = rank(0, 2, stranger.port);
  Process silent = rank(1, 2, stranger.port);
  expect_failure(first, {cat("127.0.0.1:", stranger.port), "Address already in use",
                         "choose another MASTER_PORT"});
  expect_failure(silent, {cat("127.0.0.1:", stranger.port), "sent nothing"});
}

TEST_F(ByHand, NamesAnotherProgramThatAnswers) {
  const Stranger stranger;
  std::thread talker([&] {
    const std::string noise = garbage(100000);
    std::vector<Fd> clients;
    pollfd polled{stranger.socket.get(), POLLIN, 0};
    // Until no rank has connected for a while: ranks give up after 2 s.
    while (::poll(&polled, 1, 3000) > 0) {
      clients.emplace_back(::accept4(stranger.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      ::send(clients.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  });
  Process other = rank(1, 2, stranger.port);
  expect_failure(other, {cat("127.0.0.1:", stranger.port), "is not Tutti"});
  talker.join();
}

TEST_F(ByHand, RefusesARankOfAnotherJobWithoutHarm) {
  const uint16_t port = free_port();
  Process first = rank(0, 2, port, patient_);
  Process foreign = rank(1, 2, port, {{"TUTTI_TOKEN", "a token that is theirs"}});
  expect_failure(foreign, {cat("127.0.0.1:", port), "different tokens", "TUTTI_TOKEN"});
  Process second = rank(1, 2, port, patient_);
  const Result result = first.finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("does not know this job's token"));
  expect_success(second);
}

TEST_F(ByHand, ReportsAnotherJobOnTheSamePort) {
  const uint16_t port = free_port();
  Process first = rank(0, 2, port, patient_);
  connect_to(port).reset();  // waits until rank 0 listens
  Process theirs = rank(0, 2, port, {{"TUTTI_TOKEN", "a token that is theirs"}});
  expect_failure(theirs, {"Address already in use", "another job", "MASTER_PORT"});
  Process second = rank(1, 2, port, patient_);
  expect_success(first);
  expect_success(second);
}

TEST_F(ByHand, BothSidesNameAWrongWorldSize) {
  const uint16_t port = free_port();
  Process first = rank(0, 2, port);
  Process second = rank(1, 3, port);
  expect_failure(second, {"a world of 3 ranks", "expects 2", "same WORLD_SIZE"});
  expect_failure(first, {"rank 1 (at 127.0.0.1) was started with WORLD_SIZE 3", "with 2"});
}

TEST_F(ByHand, RefusesADuplicateRank) {
  const uint16_t port = free_port();
  Process first = rank(0, 3, port);
  Process one = rank(1, 3, port);
  Process same = rank(1, 3, port);
  const Result results[] = {one.finish(), same.finish()};
  EXPECT_THAT(results[0].err + results[1].err, HasSubstr("rank 1 is already connected"));
  for (const Result& result : results) EXPECT_EQ(result.code, 1);
  expect_failure(first, {"rank 2 of 3 did not arrive within 2 s"});
}

TEST_F(ByHand, EveryRankNamesDifferentSettings) {
  const uint16_t port = free_port();
  Process first = rank(0, 2, port);
  Process second = rank(1, 2, port, {{"TUTTI_TRANSPORT", "tcp"}});
  const std::vector<std::string> said = {"different settings", "rank 1 (", "TUTTI_TRANSPORT=tcp",
                                         "rank 0 has TUTTI_TRANSPORT=auto"};
  expect_failure(first, said);
  expect_failure(second, said);
}

TEST_F(ByHand, TimesOutIfNoOtherRankComes) {
  Process first = rank(0, 4, free_port());
  Process other = rank(3, 4, free_port());
  expect_failure(first, {"did not arrive within 2 s", "TUTTI_INIT_TIMEOUT"});
  expect_failure(other, {"rank 3 did not find rank 0 within 2 s", "Connection refused"});
}

TEST_F(ByHand, NamesInvalidVariables) {
  const auto refused = [&](Process::Environment environment, const std::vector<std::string>& said) {
    Process process = rank(0, 2, free_port(), std::move(environment));
    expect_failure(process, said);
  };
  refused({{"RANK", "2"}}, {"RANK='2'", "from 0 to 1"});
  refused({{"RANK", "x"}}, {"RANK='x'"});
  refused({{"WORLD_SIZE", "0"}}, {"WORLD_SIZE='0'"});
  refused({{"MASTER_PORT", "99999"}}, {"MASTER_PORT='99999'", "65535"});
  refused({{"MASTER_PORT", ""}}, {"MASTER_PORT is not", "tutti run"});
  for (const char* rank : {"0", "1"}) {  // both look for the address until their time limit
    refused({{"RANK", rank}, {"MASTER_ADDR", "nowhere.invalid"}},
            {"cannot resolve", "nowhere.invalid", "MASTER_ADDR"});
  }
}

}  // namespace
}  // namespace tutti::tool
