// Tests ranks that search for rank 0, and find another program or another job on its port.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <future>
#include <span>
#include <thread>

#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/handshake/handshake.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::testing {
namespace {

using namespace bootstrap;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the job that torchrun describes. torchrun's store listens on the port before
// `first_port`.
Job torchruns_job(int rank, int size, uint16_t first_port) {
  const std::array<std::pair<const char*, std::string>, 6> variables = {
      {{"RANK", cat(rank)},
       {"WORLD_SIZE", cat(size)},
       {"MASTER_ADDR", "127.0.0.1"},
       {"MASTER_PORT", cat(first_port - 1)},
       {"TORCHELASTIC_RUN_ID", "none"},
       {"GROUP_WORLD_SIZE", "1"}}};
  for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
  Job job = job_from_environment();
  for (const auto& [name, value] : variables) ::unsetenv(name);
  job.token = "token";
  job.init_timeout = std::chrono::seconds(30);
  return job;
}

// Returns the error of Control::connect(), or "" if it succeeds.
std::string failure_of(const Job& job) {
  try {
    Control::connect(job);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

const auto kJoin = [](const Job& job) { Control::connect(job); };

// A process that listened on the port before rank 0 started.
class PortHolder {
 public:
  enum class Manner { silent, garbage, closing, other_version, half_a_word, refusing };

  explicit PortHolder(Manner manner) : manner_(manner), listener_(rendezvous_.release_listener()) {
    if (manner != Manner::silent) thread_ = std::jthread([this] { serve(); });
  }
  ~PortHolder() { ::shutdown(listener_.get(), SHUT_RDWR); }  // this ends accept()
  uint16_t port() const { return rendezvous_.port(); }

 private:
  void serve() {
    while (Fd guest{::accept(listener_.get(), nullptr, nullptr)}) {
      const std::string_view text = "220 mail.example ESMTP\r\n";
      if (manner_ == Manner::garbage) ::send(guest.get(), text.data(), text.size(), MSG_NOSIGNAL);
      const Challenge challenge{.version = 0x7fffffff};
      if (manner_ == Manner::other_version) {
        ::send(guest.get(), &challenge, sizeof challenge, MSG_NOSIGNAL);
      }
      if (manner_ == Manner::refusing) refuse(guest.get());
      if (manner_ == Manner::half_a_word) {
        ::send(guest.get(), kMagic.data(), 1, MSG_NOSIGNAL);
        guests_.push_back(std::move(guest));
      }
    }
  }
  // Refuses a client with a message that rank 0 might send, but without a proof that the sender
  // knows the key.
  static void refuse(int guest) {
    const Challenge challenge = make_challenge();
    const Verdict verdict{.refusal = Refusal::wrong_size, .size = 7};
    Hello hello;
    ::send(guest, &challenge, sizeof challenge, MSG_NOSIGNAL);
    read_exactly(guest, std::as_writable_bytes(std::span(&hello, 1)), Deadline::after(kPatience));
    ::send(guest, &verdict, sizeof verdict, MSG_NOSIGNAL);
  }

  const Manner manner_;
  LocalRendezvous rendezvous_;
  const Fd listener_;
  std::vector<Fd> guests_;  // connections that are kept open
  std::jthread thread_;
};

class TorchrunsPort : public ::testing::TestWithParam<PortHolder::Manner> {};

TEST_P(TorchrunsPort, AnotherProgramsPortIsSkipped) {
  const PortHolder squatter(GetParam());
  std::vector<Job> jobs;
  for (const int rank : {2, 1, 0}) jobs.push_back(torchruns_job(rank, 3, squatter.port()));
  for (const auto& error : run_jobs_catching(jobs, kJoin)) {
    EXPECT_FALSE(error.has_value()) << error->what();
  }
}

TEST(TorchrunsPorts, OccupiedPortsAreNamed) {
  const PortHolder one(PortHolder::Manner::silent);
  Job job = torchruns_job(0, 2, one.port());
  job.master_ports = 2;
  std::optional<Fd> other;
  try {
    other = listen_on(resolve("127.0.0.1", one.port() + 1).front());
  } catch (const Error&) {  // the address is already in use
  }
  EXPECT_THAT(failure_of(job), AllOf(HasSubstr(cat(one.port(), "-", one.port() + 1)),
                                     HasSubstr("Address already in use")));
}

// Only rank 0 can prove that it knows the key.
TEST(TorchrunsPorts, MayBelongToAnotherJobsRankZero) {
  LocalRendezvous other;
  auto other_zero = std::async(std::launch::async, [job = other.job(0, 2)] { kJoin(job); });
  std::vector<Job> jobs;
  for (const int rank : {0, 1}) jobs.push_back(torchruns_job(rank, 2, other.port()));
  for (const auto& error : run_jobs_catching(jobs, kJoin)) {
    EXPECT_FALSE(error.has_value()) << error->what();
  }
  kJoin(other.job(1, 2));
  other_zero.get();
}

// Rank 0 of an earlier start has the address, and ends a moment later.
TEST(Address, MayStillBelongToAnEarlierStart) {
  Fd listener = listen_on(resolve("127.0.0.1", 0).front());
  const uint16_t port = local_address(listener.get()).port();
  auto one = std::async(std::launch::async, [job = local_job(1, 2, port, "token")] { kJoin(job); });
  Fd guest(::accept(listener.get(), nullptr, nullptr));
  const Challenge challenge = make_challenge();
  const Verdict verdict{.refusal = Refusal::bad_token, .size = 2};
  Hello hello;
  write_exactly(guest.get(), std::as_bytes(std::span(&challenge, 1)), Deadline::after(kPatience));
  read_exactly(guest.get(), std::as_writable_bytes(std::span(&hello, 1)),
               Deadline::after(kPatience));
  write_exactly(guest.get(), std::as_bytes(std::span(&verdict, 1)), Deadline::after(kPatience));
  guest.reset();
  listener.reset();
  kJoin(local_job(0, 2, port, "token"));
  one.get();
}

// A port may have been assigned to another rank of the job, which knows the token too.
TEST(TorchrunsPorts, MayBelongToARankOtherThanRankZero) {
  LocalRendezvous rendezvous;
  const std::vector<Job> jobs = {rendezvous.job(0, 2), rendezvous.job(1, 2)};
  Barrier both(2);
  const auto body = [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    if (job.rank == 0) {
      Job late = local_job(1, 2, control->peer(1).port, rendezvous.token());
      late.init_timeout = std::chrono::milliseconds(200);
      EXPECT_THAT(failure_of(late),
                  AllOf(HasSubstr("did not find rank 0 within 0.2 s"),
                        HasSubstr("the process at that address is not in this job")));
    }
    both.wait();
  };
  for (const auto& error : run_jobs_catching(jobs, body)) {
    EXPECT_FALSE(error.has_value()) << error->what();
  }
}

TEST(Address, AnotherJobsAddressIsReported) {
  LocalRendezvous other;
  auto other_zero = std::async(std::launch::async, [job = other.job(0, 2)] { kJoin(job); });
  Job job = local_job(1, 2, other.port(), "token");
  job.init_timeout = std::chrono::seconds(3);
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(failure_of(job), AllOf(HasSubstr("rank 1 did not find rank 0 within 3 s"),
                                     HasSubstr("different tokens")));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("still looking for rank 0"), HasSubstr("different tokens")))
      << "not only at the end";
  kJoin(other.job(1, 2));
  other_zero.get();
}

INSTANTIATE_TEST_SUITE_P(Search, TorchrunsPort,
                         ::testing::Values(PortHolder::Manner::silent, PortHolder::Manner::garbage,
                                           PortHolder::Manner::closing,
                                           PortHolder::Manner::other_version,
                                           PortHolder::Manner::half_a_word,
                                           PortHolder::Manner::refusing));

}  // namespace
}  // namespace tutti::testing
