// Tests joining with many ranks at once, and with too few descriptors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <future>
#include <span>

#include "base/descriptor_limit.h"
#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/control/descriptor_service.h"
#include "transport/bootstrap/control/peer_table.h"
#include "transport/bootstrap/handshake/acceptor.h"
#include "transport/bootstrap/handshake/connector.h"
#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/handshake/handshake.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::testing {
namespace {

using namespace bootstrap;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// An acceptor and its clients. The test progresses each of them by hand.
class Door {
 public:
  explicit Door(int world_size) : connector_("key", world_size) {
    Fd listener = listen_on(resolve("127.0.0.1", 0).front());
    peer_.address = local_address(listener.get()).host();
    peer_.port = local_address(listener.get()).port();
    acceptor_ = Acceptor(std::move(listener), "token", world_size);
    acceptor_.set_session_key("key");
  }
  void knock(int rank, int world_size) {
    connector_.start(peer_, 0, {.purpose = Purpose::data, .rank = rank, .size = world_size},
                     "rank 0");
  }
  void turn_acceptor() {
    acceptor_.watch(
        set_, [](const Hello&) { return Decision::accept; },
        [this](const Hello&, ByteStream socket) { inside_.push_back(std::move(socket)); });
    run();
  }
  void turn_connector() {
    connector_.watch(
        set_,
        [this](uint64_t, int, int, ByteStream socket) { opened_.push_back(std::move(socket)); },
        [this](uint64_t, int, const Error& error) { failed_.emplace_back(error.what()); });
    run();
  }
  const PeerInfo& peer() const { return peer_; }
  size_t inside() const { return inside_.size(); }
  size_t opened() const { return opened_.size(); }
  const std::vector<std::string>& failed() const { return failed_; }
  void leave(size_t count) { inside_.resize(inside_.size() - count); }

 private:
  void run() {
    set_.wake_at(Clock::now() + std::chrono::milliseconds(1));
    set_.run();
  }

  PeerInfo peer_;
  Acceptor acceptor_;
  Connector connector_;
  PollSet set_;
  std::vector<ByteStream> inside_;
  std::vector<ByteStream> opened_;
  std::vector<std::string> failed_;
};

// All ranks of a large world connect at once. They must not be dropped like strangers.
TEST(Crowd, AllRanksOfALargeWorldGetIn) {
  constexpr int kWorld = 1000;
  constexpr int kTurns = 3000;
  if (!reserve_descriptors(3 * kWorld)) GTEST_SKIP() << "too few descriptors are allowed here";
  Door door(kWorld);
  for (int rank = 1; rank < kWorld; ++rank) door.knock(rank, kWorld);
  for (int turn = 0; turn < 100; ++turn)
    door.turn_acceptor();  // no client has identified itself so far
  for (int turn = 0; turn < kTurns && door.opened() < kWorld - 1; ++turn) {
    door.turn_connector();
    door.turn_acceptor();
  }
  EXPECT_THAT(door.failed(), ::testing::IsEmpty());
  EXPECT_EQ(door.opened(), kWorld - 1);
}

// A rank that is dropped before the verdict exceeded the limit of the acceptor. It must try again.
TEST(Crowd, DroppedRanksTryAgain) {
  Fd listener = listen_on(resolve("127.0.0.1", 0).front());
  PeerInfo peer;
  peer.address = local_address(listener.get()).host();
  peer.port = local_address(listener.get()).port();
  Connector connector("key", 2);
  connector.start(peer, 0, {.purpose = Purpose::data, .rank = 1, .size = 2}, "rank 0");
  ASSERT_TRUE(wait_for(listener.get(), POLLIN, Deadline::after(kPatience)));
  Fd(::accept(listener.get(), nullptr, nullptr)).reset();

  Acceptor acceptor(std::move(listener), "token", 2);
  acceptor.set_session_key("key");
  PollSet set;
  bool opened = false;
  std::string failure;
  const Deadline deadline = Deadline::after(kPatience);
  while (!opened && failure.empty() && !deadline.passed()) {
    acceptor.watch(
        set, [](const Hello&) { return Decision::accept; }, [](const Hello&, ByteStream) {});
    connector.watch(
        set, [&](uint64_t, int, int, ByteStream) { opened = true; },
        [&](uint64_t, int, const Error& error) { failure = error.what(); });
    set.wake_at(Clock::now() + std::chrono::milliseconds(10));
    set.run();
  }
  EXPECT_TRUE(opened);
  EXPECT_EQ(failure, "");
}

// Runs `body` in this process, which may open `free` more descriptors, and exits with 0. With
// `hard`, the process cannot raise this limit.
template <typename Body>
[[noreturn]] void with_few_descriptors(rlim_t free, bool hard, const Body& body) {
  const auto lowest_free = static_cast<rlim_t>(Fd(::dup(0)).get());
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = lowest_free + free;
  if (hard) limit.rlim_max = limit.rlim_cur;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  body();
  std::fflush(stderr);
  ::_exit(0);
}

// The undefined-behaviour sanitizer, which runs with the address sanitizer, inspects objects
// through a pipe. Without a descriptor for it, it reports errors.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitizerNeedsDescriptors = true;
#else
constexpr bool kSanitizerNeedsDescriptors = false;
#endif
constexpr const char* kNoneLeft = "no descriptor is left for the sanitizer";

class Descriptors : public ::testing::Test {
 protected:
  Descriptors() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(Descriptors, RaisesTheSoftLimitWhenItIsReached) {
  const auto body = [] {
    std::vector<Fd> sockets;
    const SocketAddress address = resolve("127.0.0.1", 0).front();
    for (int i = 0; i < 200; ++i) sockets.push_back(listen_on(address));
    std::fputs("all are there", stderr);
  };
  EXPECT_EXIT(with_few_descriptors(5, false, body), ::testing::ExitedWithCode(0), "all are there");
}

TEST_F(Descriptors, ExhaustionIsThisRanksOwnError) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << kNoneLeft;
  const auto body = [] {
    Door door(2);
    const Fd last(::dup(0));
    door.knock(1, 2);
    door.turn_connector();
    std::fputs(door.failed().at(0).c_str(), stderr);
  };
  EXPECT_EXIT(with_few_descriptors(2, true, body), ::testing::ExitedWithCode(0),
              "connect to rank 0 at .*Too many open files.*this process has reached its limit of "
              "open files.*ulimit -n");
}

TEST_F(Descriptors, ExhaustionDoesNotLetRankZeroWaitInVain) {
  const auto body = [] {
    LocalRendezvous rendezvous;
    try {
      Control::connect(rendezvous.job(0, 100));
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
    }
  };
  EXPECT_EXIT(with_few_descriptors(50, true, body), ::testing::ExitedWithCode(0),
              "connections to 99 ranks.*Too many open files.*ulimit -n");
}

// The acceptor has a descriptor for one client. The others must wait in the queue, and none may be
// lost.
TEST_F(Descriptors, ExhaustionOnAcceptMakesNobodyFail) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << kNoneLeft;
  constexpr int kGuests = 10;
  const auto body = [] {
    Door door(kGuests + 1);
    for (int rank = 1; rank <= kGuests; ++rank) door.knock(rank, kGuests + 1);
    std::vector<Fd> rest;
    for (Fd fd(::dup(0)); fd; fd = Fd(::dup(0))) rest.push_back(std::move(fd));
    rest.pop_back();
    const Deadline deadline = Deadline::after(kPatience);
    size_t let_in = 0;
    while (let_in < kGuests && door.failed().empty() && !deadline.passed()) {
      door.turn_acceptor();
      door.turn_connector();
      let_in += door.inside();
      door.leave(door.inside());
    }
    std::fprintf(stderr, "%zu came in, %zu failed", let_in, door.failed().size());
  };
  EXPECT_EXIT(with_few_descriptors(kGuests + 20, true, body), ::testing::ExitedWithCode(0),
              "this rank cannot accept.*(.|\n)*10 came in, 0 failed");
}

TEST(Master, KnownHereAsLoopbackIsHiddenFromOthers) {
  const auto at = [](const char* address) { return resolve(address, 0); };
  EXPECT_TRUE(is_hidden_by_loopback("node7", "node7", at("127.0.1.1")));
  EXPECT_TRUE(is_hidden_by_loopback("node7.cluster", "node7", at("127.0.1.1")));
  EXPECT_TRUE(is_hidden_by_loopback("node7", "node7.cluster", at("127.0.1.1")));
  EXPECT_FALSE(is_hidden_by_loopback("node7.a", "node7.b", at("127.0.1.1")));
  EXPECT_FALSE(is_hidden_by_loopback("node7", "node7", at("10.0.0.1")));
  EXPECT_FALSE(is_hidden_by_loopback("node8", "node7", at("127.0.1.1")));  // an intended alias
  EXPECT_FALSE(is_hidden_by_loopback("localhost", "localhost", at("127.0.0.1")));
  EXPECT_FALSE(is_hidden_by_loopback("127.0.0.1", "node7", at("127.0.0.1")));
}

TEST(Table, StoresOnlyDifferencesToThePreviousRank) {
  const auto bytes = [](int ranks) {
    PeerInfo peer{.host = "node7", .host_id = std::string(100, 'x'), .address = "10.0.0.1"};
    peer.unix_name = std::string(20, 'u');
    FrameWriter writer(FrameType::table);
    put(writer, std::vector<PeerInfo>(static_cast<size_t>(ranks), peer));
    return writer.finish().size();
  };
  EXPECT_LE(bytes(11) - bytes(1), 10 * 40);
}

TEST(Table, IsEqualAfterItWasSent) {
  std::vector<PeerInfo> peers(5);
  for (int rank = 0; rank < 5; ++rank) {
    peers[rank].host = rank < 2 || rank == 4 ? "a" : "b";
    peers[rank].host_id = cat(peers[rank].host, "/", rank == 4 ? "other boot" : "boot");
    peers[rank].pid = 100 + rank;
    peers[rank].address = rank < 2 ? "10.0.0.1" : "10.0.0.2";
    peers[rank].port = static_cast<uint16_t>(rank);
    peers[rank].unix_name = cat("socket ", rank);
    if (rank == 1 || rank == 2) peers[rank].more_rails = {{"10.1.0.1", 7}};
    peers[rank].domain.cache = rank / 2;
    peers[rank].note = rank == 0 ? "a note" : "";
    peers[rank].fabric = rank == 3 ? std::string("\0opaque", 7) : "";
  }
  FrameWriter writer(FrameType::table);
  put(writer, peers);
  const std::string frame = writer.finish();
  FrameReader reader(std::string_view(frame).substr(sizeof(uint32_t)));
  const std::vector<PeerInfo> read = get_peers(reader, 5);
  ASSERT_TRUE(reader.ok());
  ASSERT_EQ(read.size(), 5);
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(read[rank].host, peers[rank].host);
    EXPECT_EQ(read[rank].host_id, peers[rank].host_id);
    EXPECT_EQ(read[rank].pid, peers[rank].pid);
    EXPECT_EQ(read[rank].address, peers[rank].address);
    EXPECT_EQ(read[rank].port, peers[rank].port);
    EXPECT_EQ(read[rank].unix_name, peers[rank].unix_name);
    EXPECT_EQ(read[rank].rails(), peers[rank].rails());
    EXPECT_EQ(read[rank].domain.cache, peers[rank].domain.cache);
    EXPECT_EQ(read[rank].note, peers[rank].note);
    EXPECT_EQ(read[rank].fabric, peers[rank].fabric);
  }
}

}  // namespace
}  // namespace tutti::testing
