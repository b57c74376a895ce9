// Tests two ranks with an attacker on the wire between them, who reads, modifies, injects, replays
// and redirects data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tests/security/proxy.h"
#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/control_frames.h"
#include "transport/bootstrap/handshake/handshake.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::kPatience;
using testing::LocalRendezvous;
using testing::Proxy;
using testing::run_jobs_catching;

constexpr std::string_view kPattern = "the weights of a model that cost a fortune; ";
constexpr size_t kBytes = 1 << 20;
// Index, in Proxy's numbering, of rank 1's control connection to rank 0; all other connections
// carry data.
constexpr size_t kControlLink = 0;

std::string payload() {
  std::string text;
  while (text.size() < kBytes) text += kPattern;
  text.resize(kBytes);
  return text;
}

std::vector<std::string> texts(const std::vector<std::optional<Error>>& errors) {
  std::vector<std::string> texts;
  for (const auto& error : errors) texts.push_back(error ? error->what() : "");
  return texts;
}

// Broadcasts from rank 1.
void broadcast(Communicator& world, std::string& text) {
  const std::span bytes(reinterpret_cast<uint8_t*>(text.data()), text.size());
  world.broadcast(bytes, 1);
}

class OnTheWire : public ::testing::Test {
 protected:
  OnTheWire() { settings().set("TUTTI_TRANSPORT", "tcp"); }
  ~OnTheWire() override { settings().set("TUTTI_TRANSPORT", "auto"); }

  // Rank 1 reaches rank 0 through the proxy.
  std::vector<Job> jobs(bool encrypts_data) {
    std::vector<Job> jobs = {rendezvous_.job(0, 2), rendezvous_.job(1, 2)};
    for (Job& job : jobs) job.encrypts_data = encrypts_data;
    return jobs;
  }
  std::vector<std::optional<Error>> run(std::vector<Job> jobs, const Proxy& proxy,
                                        const std::function<void(Communicator&)>& body) {
    jobs[1].master_port = proxy.port();
    return run_jobs_catching(jobs, [&](const Job& job) {
      Communicator world = Communicator::init(job);
      body(world);
    });
  }
  // Rank 1 sends to rank 0, which must receive the data or an error.
  std::vector<std::optional<Error>> send(const std::vector<Job>& jobs, const Proxy& proxy) {
    const std::string right = payload();
    return run(jobs, proxy, [&](Communicator& world) {
      std::string text = world.rank() == 1 ? right : std::string(kBytes, '\0');
      broadcast(world, text);
      EXPECT_TRUE(text == right) << "a wrong result";
      world.barrier();  // else the error could report a rank that left
    });
  }

  LocalRendezvous rendezvous_;
};

TEST_F(OnTheWire, DataCanBeReadUnlessEncrypted) {
  for (const bool encrypted : {false, true}) {
    LocalRendezvous fresh;
    std::swap(rendezvous_, fresh);
    const Proxy proxy(rendezvous_.port());
    const auto errors = send(jobs(encrypted), proxy);
    EXPECT_THAT(texts(errors), Each(""));
    const std::string seen = proxy.all();
    EXPECT_GE(seen.size(), kBytes);
    EXPECT_EQ(seen.find(kPattern) != std::string::npos, !encrypted);
  }
}

// The attacker looks for host names, settings and addresses.
TEST_F(OnTheWire, NothingOfTheControlChannelCanBeRead) {
  for (const std::string& token : {std::string(), rendezvous_.token()}) {
    LocalRendezvous fresh;
    std::swap(rendezvous_, fresh);
    std::vector<Job> both = jobs(false);
    for (Job& job : both) {
      job.token = token;
      job.wire_settings = "the settings of both";
    }
    const Proxy proxy(rendezvous_.port());
    EXPECT_THAT(texts(run(both, proxy, [](Communicator&) {})), Each(""));
    EXPECT_EQ(proxy.all().find("the settings of both") != std::string::npos, token.empty());
  }
}

TEST_F(OnTheWire, ChangedBitIsAnErrorAndNoResult) {
  const auto flip = [](size_t connection, size_t before, std::string& bytes) {
    const size_t at = 100'000;
    if (connection != kControlLink && before <= at && at < before + bytes.size()) {
      bytes[at - before] ^= 0x10;
    }
  };
  const Proxy proxy(rendezvous_.port(), flip);
  const auto errors = send(jobs(true), proxy);
  ASSERT_TRUE(errors[0].has_value());
  EXPECT_THAT(errors[0]->what(), AllOf(HasSubstr("corrupted in transit"), HasSubstr("rank 1")));
  EXPECT_EQ(errors[0]->code(), ErrorCode::corrupted);
}

// Swaps two adjacent 16-bit words that differ, once, on a data connection. TCP's checksum is a sum
// of words, so it does not detect the swap.
Proxy::Meddle swap_two_words(bool& swapped) {
  return [&swapped](size_t connection, size_t before, std::string& bytes) {
    constexpr size_t kPastTheHandshake = 4096;
    if (connection == kControlLink || before < kPastTheHandshake) return;
    if (bytes.size() < 8192) return;  // in the middle of a payload, not in a header
    for (size_t at = bytes.size() / 2; !swapped && at + 4 <= bytes.size(); ++at) {
      swapped = bytes.compare(at, 2, bytes, at + 2, 2) != 0;
      if (swapped) std::swap_ranges(&bytes[at], &bytes[at + 2], &bytes[at + 2]);
    }
  };
}

// Without TUTTI_INTEGRITY the sum is wrong, and no error is reported.
TEST_F(OnTheWire, SwappedWordsAreAnErrorAndNoSum) {
  for (const std::string integrity : {"off", "on"}) {
    SCOPED_TRACE(integrity);
    settings().set("TUTTI_INTEGRITY", integrity);
    LocalRendezvous fresh;
    std::swap(rendezvous_, fresh);
    bool swapped = false;
    std::atomic<int> wrong{0};
    std::vector<std::optional<Error>> errors;
    {
      const Proxy proxy(rendezvous_.port(), swap_two_words(swapped));
      errors = run(jobs(false), proxy, [&](Communicator& world) {
        std::vector<float> values(1 << 20);
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
        world.all_reduce(std::span(values));
        for (size_t i = 0; i < values.size(); ++i) {
          if (values[i] != static_cast<float>(2 * (i % 1000))) ++wrong;
        }
        world.barrier();  // else the error could report a rank that left
      });
    }
    settings().set("TUTTI_INTEGRITY", "auto");
    EXPECT_TRUE(swapped);
    if (integrity == "off") {
      EXPECT_THAT(texts(errors), Each(""));
      EXPECT_GT(wrong, 0);
      continue;
    }
    EXPECT_EQ(wrong, 0);
    for (const std::optional<Error>& error : errors) {
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(error->code(), ErrorCode::corrupted);
      EXPECT_EQ(error->rank(), 1);
      EXPECT_THAT(error->what(),
                  AllOf(HasSubstr("rank 1"), HasSubstr("corrupted in transit"), HasSubstr("hash"),
                        HasSubstr("127.0.0.1"), HasSubstr("likely cause"), HasSubstr("remedy")));
    }
  }
}

TEST_F(OnTheWire, DifferentIntegritySettingsAreAnError) {
  const Proxy proxy(rendezvous_.port());
  std::vector<Job> both = jobs(false);
  both[0].wire_settings = "TUTTI_INTEGRITY=auto;";
  both[1].wire_settings = "TUTTI_INTEGRITY=off;";
  const auto errors = run(both, proxy, [](Communicator&) {});
  ASSERT_TRUE(errors[1].has_value());
  EXPECT_THAT(errors[1]->what(), HasSubstr("TUTTI_INTEGRITY"));
  EXPECT_THAT(settings().wire_settings(), HasSubstr("TUTTI_INTEGRITY=auto;"));
}

// The second run shows that the forgery is valid: without a token it is accepted.
TEST_F(OnTheWire, ForgedDeathIsIgnored) {
  const std::string forged = bootstrap::death_frame(
      {.rank = 1, .text = "rank 1 was killed, says the attacker", .certain = true});
  for (const std::string& token : {rendezvous_.token(), std::string()}) {
    LocalRendezvous fresh;
    std::swap(rendezvous_, fresh);
    std::vector<Job> both = jobs(false);
    for (Job& job : both) job.token = token;
    Proxy proxy(rendezvous_.port());
    const auto errors = run(both, proxy, [&](Communicator& world) {
      world.barrier();
      if (world.rank() == 1) proxy.inject(kControlLink, forged);
      for (int i = 0; i < 300; ++i) {
        world.barrier();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
    ASSERT_TRUE(errors[0].has_value());
    EXPECT_THAT(errors[0]->what(),
                HasSubstr(token.empty() ? "says the attacker" : "corrupted in transit"));
  }
}

TEST_F(OnTheWire, RecordedConnectionIsRefused) {
  const Proxy proxy(rendezvous_.port());
  const auto errors = run(jobs(true), proxy, [&](Communicator& world) {
    std::string text(1000, 'x');
    broadcast(world, text);
    if (world.rank() == 1) {
      for (const Proxy::Heard& heard : proxy.heard()) {
        Fd socket;
        const auto there = bootstrap::resolve("127.0.0.1", rendezvous_.port()).front();
        ASSERT_EQ(bootstrap::try_connect(there, Deadline::after(kPatience), socket), 0);
        bootstrap::write_exactly(socket.get(), std::as_bytes(std::span(heard.by_connector)),
                                 Deadline::after(kPatience));
        bootstrap::Challenge challenge;
        bootstrap::read_exactly(socket.get(), std::as_writable_bytes(std::span(&challenge, 1)),
                                Deadline::after(kPatience));
        bootstrap::Verdict verdict;
        const auto heard_verdict =
            bootstrap::read_exactly(socket.get(), std::as_writable_bytes(std::span(&verdict, 1)),
                                    Deadline::after(kPatience));
        if (heard_verdict == bootstrap::Transfer::complete) {
          EXPECT_EQ(verdict.refusal, bootstrap::Refusal::bad_token);
        }
      }
    }
    world.barrier();
  });
  EXPECT_THAT(texts(errors), Each(""));
}

// Rank 1's data connection to rank 0 is redirected to rank 2, whose listener the attacker knows.
TEST_F(OnTheWire, RedirectedConnectionIsRefused) {
  std::vector<Job> three;
  for (const int rank : {0, 1, 2}) three.push_back(rendezvous_.job(rank, 3));
  std::atomic<uint16_t> port_of_two{0};
  const Proxy proxy(rendezvous_.port(), {}, [&](size_t connection) -> uint16_t {
    return connection == kControlLink ? 0 : port_of_two.load();
  });
  three[1].master_port = proxy.port();
  std::string told;
  const auto errors = run_jobs_catching(three, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    testing::AttachedClient client(*control, 1, {0, 1, 2});
    if (job.rank == 1) {
      port_of_two = control->peer(2).port;
      control->open_connection(1, 0, 0, {});
    }
    const std::string text = client->wait_for_abort().what();
    if (job.rank == 1) told = text;
  });
  EXPECT_THAT(told, HasSubstr("the process at that address is not in this job"));
}

}  // namespace
}  // namespace tutti
