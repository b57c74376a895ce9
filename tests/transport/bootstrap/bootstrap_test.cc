// Tests how ranks meet, and how this fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <span>
#include <thread>

#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/discovery/meeting.h"
#include "transport/bootstrap/discovery/rendezvous.h"
#include "transport/bootstrap/handshake/handshake.h"
#include "transport/bootstrap/handshake/socket.h"
#include "transport/message.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Timeout of ranks that are expected to fail.
constexpr std::chrono::milliseconds kShort{200};

const auto kJoin = [](const Job& job) { Control::connect(job); };

// Returns the error of Control::connect(), or "" if it succeeds.
std::string failure_of(const Job& job) {
  try {
    Control::connect(job);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bootstrap);
    return error.what();
  }
  return {};
}

std::future<std::string> in_background(const Job& job) {
  return std::async(std::launch::async, [job] { return failure_of(job); });
}

// A client that is not a rank of Tutti.
class Stranger {
 public:
  explicit Stranger(uint16_t port) {
    const auto addresses = bootstrap::resolve("127.0.0.1", port);
    EXPECT_EQ(bootstrap::try_connect(addresses[0], Deadline::after(kPatience), socket_), 0);
  }
  void say(std::string_view text) const {
    bootstrap::write_exactly(socket_.get(), std::as_bytes(std::span(text)),
                             Deadline::after(kPatience));
  }
  template <typename T>
  T hear() const {
    T message;
    bootstrap::read_exactly(socket_.get(), std::as_writable_bytes(std::span(&message, 1)),
                            Deadline::after(kPatience));
    return message;
  }
  // Returns true if the other side closes the connection.
  bool dropped() const {
    std::array<std::byte, 4096> block;
    return bootstrap::read_exactly(socket_.get(), block, Deadline::after(kPatience)) ==
           bootstrap::Transfer::closed;
  }

 private:
  Fd socket_;
};

TEST(Refusal, AnotherTokenFailsThatRankOnly) {
  LocalRendezvous rendezvous;
  auto zero = in_background(rendezvous.job(0, 2));
  Job intruder = rendezvous.job(1, 2);
  intruder.token = "something else";
  intruder.init_timeout = kShort;
  EXPECT_THAT(failure_of(intruder),
              AllOf(HasSubstr(cat("rank 0 at 127.0.0.1:", rendezvous.port())),
                    HasSubstr("refused this rank: the two have different tokens")));
  EXPECT_EQ(failure_of(rendezvous.job(1, 2)), "");
  EXPECT_EQ(zero.get(), "");
}

TEST(Refusal, ARankOfAnotherStartOfTheJobIsRefused) {
  for (const char* token : {"secret", ""}) {
    LocalRendezvous rendezvous;
    const auto job = [&](int rank, const char* incarnation) {
      Job job = rendezvous.job(rank, 2);
      job.token = token;
      job.incarnation = incarnation;
      return job;
    };
    const auto refused = [&](const char* incarnation) {
      Job late = job(1, incarnation);
      late.init_timeout = kShort;
      return failure_of(late);
    };
    auto zero = in_background(job(0, "second"));
    EXPECT_THAT(refused("first"), HasSubstr("an earlier start of this one"));
    EXPECT_THAT(refused(""), HasSubstr("different tokens"));
    EXPECT_EQ(failure_of(job(1, "second")), "");
    EXPECT_EQ(zero.get(), "");
  }
}

TEST(Refusal, ADuplicateRankIsRefused) {
  LocalRendezvous rendezvous;
  auto zero = in_background(rendezvous.job(0, 3));
  std::promise<std::string> first_failure;
  std::atomic<int> failures = 0;
  std::vector<std::jthread> twins;
  for (int i = 0; i < 2; ++i) {
    twins.emplace_back([&] {
      const std::string failure = failure_of(rendezvous.job(1, 3));
      if (!failure.empty() && failures++ == 0) first_failure.set_value(failure);
    });
  }
  auto failure = first_failure.get_future();
  ASSERT_EQ(failure.wait_for(kPatience), std::future_status::ready);
  EXPECT_THAT(failure.get(), HasSubstr("rank 1 is already connected"));
  EXPECT_EQ(failure_of(rendezvous.job(2, 3)), "");
  EXPECT_EQ(zero.get(), "");
  twins.clear();
  EXPECT_EQ(failures, 1);
}

TEST(Refusal, ARankThatDoesNotExistIsRefused) {
  Job job;
  job.size = 2;
  job.rank = 2;
  EXPECT_THAT(failure_of(job), HasSubstr("rank 2 does not exist in a job of 2 ranks"));
}

TEST(Settings, EveryRankNamesSettingsThatDiffer) {
  const auto errors = run_ranks_catching(3, [](Job job) {
    job.wire_settings = job.rank == 2 ? "TUTTI_A=1;TUTTI_B=tcp;" : "TUTTI_A=1;TUTTI_B=shm;";
    Control::connect(job);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::bootstrap);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("rank 2 ("), HasSubstr("has TUTTI_B=tcp, rank 0 "
                                                                      "has TUTTI_B=shm")));
  }
}

TEST(Token, RankZeroReportsAMissingTokenOnce) {
  LocalRendezvous rendezvous;
  std::vector<Job> jobs = {rendezvous.job(0, 2), rendezvous.job(1, 2)};
  for (Job& job : jobs) job.token.clear();
  ::testing::internal::CaptureStderr();
  const auto errors = run_jobs_catching(jobs, kJoin);
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const auto& error : errors) EXPECT_FALSE(error.has_value());
  EXPECT_THAT(said, AllOf(HasSubstr("[rank 0] warning: this job has no token"),
                          HasSubstr("set TUTTI_TOKEN")));
  EXPECT_EQ(said.find("no token"), said.rfind("no token"));
}

TEST(Missing, RanksAreNamed) {
  LocalRendezvous rendezvous;
  std::vector<Job> jobs = {rendezvous.job(0, 5), rendezvous.job(1, 5)};
  for (Job& job : jobs) job.init_timeout = std::chrono::milliseconds(500);
  for (const auto& error : run_jobs_catching(jobs, kJoin)) {
    ASSERT_TRUE(error.has_value());
    EXPECT_THAT(error->what(), HasSubstr("ranks 2-4 of 5 did not arrive within 0.5 s"));
  }
}

TEST(Missing, RankZeroIsNamed) {
  uint16_t port = 0;
  {
    const LocalRendezvous nobody_listens_any_more;
    port = nobody_listens_any_more.port();
  }
  Job job = local_job(1, 2, port, "token");
  job.init_timeout = std::chrono::milliseconds(200);
  EXPECT_THAT(failure_of(job),
              AllOf(HasSubstr("rank 1 did not find rank 0 within 0.2 s"),
                    HasSubstr(cat("127.0.0.1:", port)), HasSubstr("Connection refused")));
}

TEST(Missing, ASilentRankZeroIsNamed) {
  LocalRendezvous listens_only;
  Job job = listens_only.job(1, 2);
  job.init_timeout = std::chrono::milliseconds(200);
  EXPECT_THAT(failure_of(job), HasSubstr("accepted the connection but sent nothing"));
}

TEST(Missing, RankZeroMayComeLast) {
  LocalRendezvous rendezvous;
  Fd(rendezvous.release_listener()).reset();  // so that rank 0 can bind the port itself
  std::vector<Job> jobs;
  for (const int rank : {2, 1, 0}) {
    jobs.push_back(local_job(rank, 3, rendezvous.port(), rendezvous.token()));
  }
  for (const auto& error : run_jobs_catching(jobs, kJoin)) {
    EXPECT_FALSE(error.has_value()) << error->what();
  }
}

TEST(Strangers, GarbageSilenceAndHalfAHelloStopNobody) {
  LocalRendezvous rendezvous;
  const Stranger early(rendezvous.port());
  early.say("GET / HTTP/1.0\r\n\r\n");
  const Stranger silent(rendezvous.port());
  const Stranger half(rendezvous.port());
  half.say(std::string_view(bootstrap::kMagic.data(), bootstrap::kMagic.size()));
  auto zero = in_background(rendezvous.job(0, 2));
  EXPECT_TRUE(early.dropped());

  const Stranger late(rendezvous.port());
  late.say(std::string(100'000, 'x'));
  EXPECT_TRUE(late.dropped());
  // Sends a correct message with an invalid proof.
  const Stranger forger(rendezvous.port());
  bootstrap::Hello hello{.version = kWireVersion, .rank = 1, .size = 2};
  forger.say(std::string_view(reinterpret_cast<const char*>(&hello), sizeof(hello)));
  EXPECT_EQ(forger.hear<bootstrap::Challenge>().version, kWireVersion);
  const auto verdict = forger.hear<bootstrap::Verdict>();
  EXPECT_EQ(verdict.refusal, bootstrap::Refusal::bad_token);
  EXPECT_EQ(verdict.proof, bootstrap::Digest{});  // the proof does not help to guess the token
  EXPECT_TRUE(forger.dropped());

  EXPECT_EQ(failure_of(rendezvous.job(1, 2)), "");
  EXPECT_EQ(zero.get(), "");
}

TEST(Strangers, StrangersOnTheRunningChannelStopNobody) {
  LocalRendezvous rendezvous;
  Barrier step(2);
  std::vector<Job> jobs = {rendezvous.job(0, 2), rendezvous.job(1, 2)};
  const auto body = [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    AttachedClient client(*control, 1, everybody(2));
    const Stranger garbage(control->peer(1 - job.rank).port);
    garbage.say(std::string(1000, '\0'));
    EXPECT_TRUE(garbage.dropped());
    control->ask(1, 1 - job.rank, 1);
    client->wait_for_answer(1 - job.rank, 1);
    step.wait();
  };
  for (const auto& error : run_jobs_catching(jobs, body)) {
    EXPECT_FALSE(error.has_value()) << error->what();
  }
}

TEST(Strangers, StrangersThatListenInsteadOfRankZeroAreNamed) {
  LocalRendezvous rendezvous;
  const Fd listener(rendezvous.release_listener());
  Job hasty = local_job(1, 2, rendezvous.port(), "token");
  hasty.init_timeout = std::chrono::seconds(1);
  auto one = in_background(hasty);
  const Fd socket(::accept(listener.get(), nullptr, nullptr));
  const std::string_view text = "220 mail.example ESMTP\r\n";
  ASSERT_EQ(::write(socket.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_THAT(one.get(),
              AllOf(HasSubstr(cat("127.0.0.1:", rendezvous.port())), HasSubstr("is not Tutti")));
}

TEST(Strangers, ATakenPortOfRankZeroIsNamed) {
  const LocalRendezvous taken;
  EXPECT_THAT(failure_of(local_job(0, 2, taken.port(), "token")),
              AllOf(HasSubstr(cat("listen on 127.0.0.1:", taken.port())),
                    HasSubstr("Address already in use"), HasSubstr("MASTER_PORT")));
}

TEST(Rendezvous, UsesAFileThatIsGoneAfterwards) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / cat("tutti-", ::getpid());
  std::filesystem::create_directory(folder);
  const std::string file = folder / "meet";
  for (int round = 0; round < 2; ++round) {
    std::vector<Job> jobs;
    for (const int rank : {2, 1, 0}) jobs.push_back(local_job(rank, 3, file, "token"));
    for (const auto& error : run_jobs_catching(jobs, kJoin)) {
      EXPECT_FALSE(error.has_value()) << error->what();
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
  std::filesystem::remove_all(folder);
}

// The file has the address of another job, until rank 0 replaces it.
TEST(Rendezvous, ReplacesAFileThatAnotherJobLeftBehind) {
  const std::string file =
      std::filesystem::path(::testing::TempDir()) / cat("tutti-stale-", ::getpid());
  LocalRendezvous other;
  auto other_zero = in_background(other.job(0, 2));
  const bootstrap::Published left_behind(
      std::make_shared<bootstrap::FileRendezvous>(file), bootstrap::kRankZeroKey,
      bootstrap::rank_zero_value(bootstrap::resolve("127.0.0.1", other.port())[0]));
  Job hasty = local_job(1, 2, file, "token");
  hasty.init_timeout = std::chrono::milliseconds(200);
  EXPECT_THAT(failure_of(hasty),
              AllOf(HasSubstr("did not find rank 0 within 0.2 s"), HasSubstr("different tokens")));
  auto one = in_background(local_job(1, 2, file, "token"));
  EXPECT_EQ(failure_of(local_job(0, 2, file, "token")), "");
  EXPECT_EQ(one.get(), "");
  EXPECT_EQ(failure_of(other.job(1, 2)), "");
  EXPECT_EQ(other_zero.get(), "");
}

// A key-value store that is implemented by the caller.
class StoreInMemory final : public Rendezvous {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    ++times_set_;
  }
  void remove(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }
  std::optional<std::string> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  bool empty() const { return values_.empty(); }
  int times_set() const { return times_set_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  int times_set_ = 0;
};

TEST(Rendezvous, UsesTheCallersStore) {
  const auto store = std::make_shared<StoreInMemory>();
  std::vector<Job> jobs;
  for (const int rank : {2, 1, 0}) {
    jobs.push_back(local_job(rank, 3, std::string(), "token"));
    jobs.back().rendezvous = store;
  }
  for (const auto& error : run_jobs_catching(jobs, kJoin)) {
    EXPECT_FALSE(error.has_value()) << error->what();
  }
  EXPECT_EQ(store->times_set(), 1);
  EXPECT_TRUE(store->empty());
}

// A process that cannot read the store is not admitted.
TEST(Rendezvous, TheFileContainsTheTokenToo) {
  const auto store = std::make_shared<StoreInMemory>();
  std::vector<Job> jobs;
  for (const int rank : {0, 1, 2}) {
    jobs.push_back(local_job(rank, 3, std::string(), ""));
    jobs.back().rendezvous = store;
    jobs.back().token_by_rendezvous = true;
    jobs.back().fanout = 1;
  }
  auto zero = in_background(jobs[0]);
  auto one = in_background(jobs[1]);
  std::optional<std::string> told;
  while (!(told = store->get(bootstrap::kRankZeroKey))) std::this_thread::yield();
  Job guessing = jobs[2];
  guessing.rendezvous = std::make_shared<StoreInMemory>();
  guessing.rendezvous->set(bootstrap::kRankZeroKey,
                           bootstrap::rank_zero_value(bootstrap::parse_rank_zero(*told), "guess"));
  guessing.init_timeout = std::chrono::milliseconds(200);
  EXPECT_THAT(failure_of(guessing), HasSubstr("different tokens"));
  EXPECT_EQ(failure_of(jobs[2]), "");
  EXPECT_EQ(one.get(), "");
  EXPECT_EQ(zero.get(), "");
}

TEST(Rendezvous, EmptyFilesAreReported) {
  Job job = local_job(1, 2, std::string(), "token");
  job.rendezvous = std::make_shared<StoreInMemory>();
  job.init_timeout = std::chrono::milliseconds(100);
  EXPECT_THAT(failure_of(job), HasSubstr("the rendezvous does not have rank 0's address yet"));
  job.rendezvous->set(bootstrap::kRankZeroKey, "nonsense");
  EXPECT_THAT(failure_of(job), HasSubstr("'nonsense' is not an address of rank 0"));
}

TEST(Rendezvous, MissingFoldersAreReported) {
  EXPECT_THAT(failure_of(local_job(0, 2, std::string("/nowhere/at/all"), "token")),
              AllOf(HasSubstr("rendezvous file /nowhere/at/all"), HasSubstr("No such file")));
}

TEST(Rendezvous, WorksOverIpv6) {
  std::optional<LocalRendezvous> rendezvous;
  try {
    rendezvous.emplace("::1");
  } catch (const Error& error) {
    GTEST_SKIP() << "no IPv6 loopback here: " << error.what();
  }
  std::vector<Job> jobs;
  for (int rank = 0; rank < 3; ++rank) jobs.push_back(rendezvous->job(rank, 3));
  const auto body = [](Job job) {
    job.fanout = 1;  // so that others than rank 0 listen, too
    EXPECT_EQ(Control::connect(job)->peer(1).address, "::1");
  };
  for (const auto& error : run_jobs_catching(jobs, body)) {
    EXPECT_FALSE(error.has_value()) << error->what();
  }
}

// A rank that has left one job may be too early for the next job at the same address.
TEST(Rendezvous, WorksTwiceAtTheSameAddress) {
  LocalRendezvous rendezvous;
  const std::vector<Job> jobs = {rendezvous.job(0, 2), rendezvous.job(1, 2)};
  const auto body = [](const Job& job) {
    std::shared_ptr<Control> first = Control::connect(job);
    const Deadline deadline = Deadline::after(kPatience);
    while (job.rank == 0 && !first->has_left(1) && !deadline.passed()) std::this_thread::yield();
    first.reset();
    Control::connect(job);
  };
  for (const auto& error : run_jobs_catching(jobs, body)) {
    EXPECT_FALSE(error.has_value()) << error->what();
  }
}

// A message without a proof is from a stranger, so the search for rank 0 must continue.
TEST(Verdict, NeedsAProof) {
  using namespace bootstrap;
  const Challenge challenge = make_challenge();
  const Hello hello = sign_hello({.rank = 1, .size = 2}, challenge, "token", "rank 0");
  Verdict verdict{.size = 2};
  EXPECT_THROW(check_verdict(verdict, challenge, hello, "token", "rank 0"), Error);
  verdict.proof = prove("other token", challenge, hello, verdict);
  EXPECT_THROW(check_verdict(verdict, challenge, hello, "token", "rank 0"), Error);
  verdict.proof = prove("token", challenge, hello, verdict);
  EXPECT_NO_THROW(check_verdict(verdict, challenge, hello, "token", "rank 0"));
  verdict.refusal = Refusal::duplicate_rank;
  EXPECT_THROW(check_verdict(verdict, challenge, hello, "token", "rank 0"), ForeignListener);
  verdict.proof = prove("token", challenge, hello, verdict);
  try {
    check_verdict(verdict, challenge, hello, "token", "rank 0");
    ADD_FAILURE() << "rank 0 refuses this rank";
  } catch (const ForeignListener&) {
    ADD_FAILURE() << "rank 0 knows the token";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 is already connected"));
  }
}

TEST(Session, KeysDependOnTokenAndJob) {
  const bootstrap::Nonce one = bootstrap::random_nonce();
  const bootstrap::Nonce two = bootstrap::random_nonce();
  EXPECT_NE(bootstrap::session_key("a", one), bootstrap::session_key("a", two));
  EXPECT_NE(bootstrap::session_key("a", one), bootstrap::session_key("b", one));
  EXPECT_EQ(bootstrap::session_key("a", one), bootstrap::session_key("a", one));
}

}  // namespace
}  // namespace tutti::testing
