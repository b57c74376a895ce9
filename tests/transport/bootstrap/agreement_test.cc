// Tests agreements in thousands of runs in simulated time. The channel loses, delays and reorders
// messages, and members die.
#include "transport/bootstrap/membership/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;

// All ranks, the channels between them, and the simulated clock.
class World {
 public:
  struct Outcome {
    std::optional<Agreed> agreed;
    std::optional<Error> error;
  };

  World(int size, uint32_t seed) : random_(seed) {
    for (int rank = 0; rank < size; ++rank) ranks_.push_back(std::make_unique<Rank>(*this, rank));
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  int random(int end) { return static_cast<int>(random_() % static_cast<uint32_t>(end)); }
  void at(milliseconds when, std::function<void()> what) {
    events_.push({when, next_++, std::move(what)});
  }
  void start(int rank, uint64_t flags, milliseconds timeout = milliseconds(100'000)) {
    std::vector<int> members;
    for (int r = 0; r < size(); ++r) members.push_back(r);
    Rank& own = *ranks_[static_cast<size_t>(rank)];
    own.agreements.start({7, 1}, {.members = members, .flags = flags, .separates = separates_},
                         timeout, [&own](const Agreed* agreed, const Error* error) {
                           EXPECT_FALSE(own.outcome.agreed || own.outcome.error) << "told twice";
                           if (agreed != nullptr) own.outcome.agreed = *agreed;
                           if (error != nullptr) own.outcome.error = *error;
                         });
  }
  // Kills a rank. The other ranks are notified of the death at different times. With `certain`,
  // they are also notified that the rank has ended.
  void kill(int rank, bool certain) {
    ranks_[static_cast<size_t>(rank)]->dead = true;
    for (int hearer = 0; hearer < size(); ++hearer) {
      at(now_ + milliseconds(random(50)), [this, hearer, rank, certain] {
        if (hearer != rank) hear_of(hearer, rank, certain);
      });
    }
  }
  void hear_of(int hearer, int rank, bool certain) {
    Rank& own = *ranks_[static_cast<size_t>(hearer)];
    own.gone[rank] = certain;
    if (!own.dead) own.agreements.look_again();
  }
  void start_again(int rank, uint64_t flags) {
    ranks_[static_cast<size_t>(rank)]->outcome = {};
    start(rank, flags);
  }
  void cut(std::function<bool(int, int)> separated) { separated_ = std::move(separated); }
  void lose(int percent) { lost_ = percent; }
  // Places ranks with equal numbers on one host. From now on, agreements may separate hosts.
  void live_on(std::vector<int> hosts) {
    separates_ = true;
    for (const int host : hosts) hosts_.push_back(cat("host ", host));
  }
  // Breaks the data path between two ranks. Messages of agreements still arrive.
  void break_path(int from, int to) { ranks_[static_cast<size_t>(from)]->unreached.insert(to); }
  void have_launcher() { has_launcher_ = true; }
  void run() {
    for (; !events_.empty() && now_ < milliseconds(200'000); events_.pop()) {
      now_ = events_.top().when;
      const auto what = events_.top().what;
      what();
    }
  }
  const Outcome& outcome(int rank) const { return ranks_[static_cast<size_t>(rank)]->outcome; }
  bool dead(int rank) const { return ranks_[static_cast<size_t>(rank)]->dead; }

 private:
  struct Rank final : AgreementChannel {
    Rank(World& all, int own) : world(all), rank(own) {}
    int own_rank() const override { return rank; }
    bool is_rank(int number) const override { return number >= 0 && number < world.size(); }
    std::string name_of(int other) const override { return cat("rank ", other); }
    void send_to(int to, const std::string& frame) override {
      if (world.random(100) < world.lost_ || (world.separated_ && world.separated_(rank, to)))
        return;
      world.at(world.now_ + milliseconds(world.random(20)), [this, to, frame] {
        Rank& other = *world.ranks_[static_cast<size_t>(to)];
        if (other.dead) return;
        FrameReader reader(std::string_view(frame).substr(sizeof(uint32_t)));
        EXPECT_EQ(reader.get<int32_t>(), to);
        EXPECT_TRUE(other.agreements.on_frame(reader));
      });
    }
    bool has_gone(int other) const override { return gone.contains(other); }
    bool has_ended(int other) const override {
      const auto found = gone.find(other);
      return found != gone.end() && found->second;
    }
    bool reaches(int other) const override { return !unreached.contains(other); }
    std::string_view host_of(int other) const override {
      return world.hosts_[static_cast<size_t>(other)];
    }
    bool may_learn_of_ends() const override { return world.has_launcher_; }
    Clock::time_point now() const override { return Clock::time_point(world.now_); }
    void call_after(milliseconds delay, std::function<void()> what) override {
      world.at(world.now_ + delay, [this, what = std::move(what)] {
        if (!dead) what();
      });
    }

    World& world;
    const int rank;
    bool dead = false;
    std::map<int, bool> gone;
    std::set<int> unreached;
    Outcome outcome;
    Agreements agreements{*this};
  };
  struct Event {
    milliseconds when;
    int number;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(when, number) > std::pair(other.when, other.number);
    }
  };

  std::mt19937 random_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::priority_queue<Event> events_;
  std::function<bool(int, int)> separated_;
  int lost_ = 0;
  bool has_launcher_ = false;
  bool separates_ = false;
  std::vector<std::string> hosts_;
  int next_ = 0;
  milliseconds now_{0};
};

TEST(Agreements, AllSurvivorsDecideAlike) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    World world(1 + static_cast<int>(seed % 8), seed);
    world.lose(seed % 3 == 0 ? 30 : 0);
    for (int rank = 0; rank < world.size(); ++rank) {
      world.at(milliseconds(world.random(60)), [&world, rank] {
        if (!world.dead(rank)) world.start(rank, ~(uint64_t{1} << rank));
      });
    }
    const int deaths = world.random(world.size());
    for (int i = 0; i < deaths; ++i) {
      const int victim = world.random(2) == 0 ? i : world.random(world.size());
      world.at(milliseconds(world.random(120)), [&world, victim] {
        if (!world.dead(victim)) world.kill(victim, true);
      });
    }
    world.run();
    std::optional<Agreed> first;
    for (int rank = 0; rank < world.size(); ++rank) {
      const World::Outcome& outcome = world.outcome(rank);
      // Decisions that dead ranks have received count too, because these ranks may have acted on
      // them.
      if (world.dead(rank) && !outcome.agreed) continue;
      ASSERT_TRUE(outcome.agreed) << "rank " << rank << ": "
                                  << (outcome.error ? outcome.error->what() : "still waits");
      if (!first) first = outcome.agreed;
      ASSERT_EQ(outcome.agreed->living, first->living) << "rank " << rank;
      ASSERT_EQ(outcome.agreed->flags, first->flags) << "rank " << rank;
      if (!world.dead(rank)) {
        ASSERT_TRUE(std::ranges::find(first->living, rank) != first->living.end());
      }
    }
    for (const int rank : first ? first->living : std::vector<int>()) {
      ASSERT_EQ(first->flags >> rank & 1, 0U) << "rank " << rank << " gave no such flag";
    }
  }
}

// Each side considers the other side dead, and messages between the sides are lost.
TEST(Agreements, ContinueAtOneSideOfACut) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    for (const int size : {2, 3, 4, 5, 8}) {
      const int first_side = 1 + static_cast<int>(seed) % (size - 1);
      SCOPED_TRACE(cat("seed ", seed, ": ", first_side, " of ", size));
      World world(size, seed);
      const auto side = [first_side](int rank) { return rank < first_side; };
      const milliseconds when(world.random(80));
      world.at(when, [&] {
        world.cut([side](int a, int b) { return side(a) != side(b); });
        for (int a = 0; a < size; ++a) {
          for (int b = 0; b < size; ++b) {
            if (side(a) == side(b)) continue;
            world.at(when + milliseconds(world.random(100)),
                     [&world, a, b] { world.hear_of(a, b, false); });
          }
        }
      });
      for (int rank = 0; rank < size; ++rank) {
        world.at(milliseconds(world.random(60)), [&world, rank] { world.start(rank, 1); });
      }
      world.run();
      const bool first_goes_on = 2 * first_side >= size;
      std::optional<std::vector<int>> living;
      for (int rank = 0; rank < size; ++rank) {
        const World::Outcome& outcome = world.outcome(rank);
        ASSERT_TRUE(outcome.agreed || outcome.error) << "rank " << rank << " still waits";
        if (outcome.agreed) {
          if (!living) living = outcome.agreed->living;
          ASSERT_EQ(outcome.agreed->living, *living) << "both sides go on";
        } else {
          ASSERT_EQ(outcome.error->code(), ErrorCode::connection_lost);
          ASSERT_NE(side(rank), first_goes_on) << outcome.error->what();
        }
      }
      ASSERT_TRUE(living) << "no side goes on";
    }
  }
}

// Ranks 0 and 1 decide, because they are the half with the first member. Then one of them is
// killed, and the launcher reports this to all ranks. Now the other half has two of the three
// remaining ranks, but must not decide differently.
TEST(Agreements, DecisionsHoldAfterQuorumMembersHaveEnded) {
  for (const int victim : {0, 1}) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(cat("seed ", seed, ", rank ", victim, " is killed"));
      World world(4, seed);
      world.have_launcher();
      world.cut([](int a, int b) { return (a < 2) != (b < 2); });
      for (const auto& [a, b] : {std::pair(0, 2), {0, 3}, {1, 2}, {1, 3}}) {
        world.hear_of(a, b, false);
        world.hear_of(b, a, false);
      }
      for (const int rank : {0, 1}) world.at(milliseconds(0), [&, rank] { world.start(rank, 1); });
      for (const int rank : {2, 3}) {
        world.at(milliseconds(1000), [&, rank] { world.start(rank, 1); });
      }
      world.at(milliseconds(2000), [&] { world.kill(victim, true); });
      // When no rank of the first half is left, the second half may decide.
      world.at(milliseconds(20'000), [&] {
        for (const int rank : {2, 3}) {
          ASSERT_TRUE(world.outcome(rank).error) << "decided anew";
          EXPECT_EQ(world.outcome(rank).error->code(), ErrorCode::connection_lost);
          world.start_again(rank, 1);
        }
        world.kill(1 - victim, true);
      });
      world.run();
      for (const int rank : {0, 1}) {
        ASSERT_TRUE(world.outcome(rank).agreed);
        EXPECT_EQ(world.outcome(rank).agreed->living, (std::vector<int>{0, 1}));
      }
      for (const int rank : {2, 3}) {
        ASSERT_TRUE(world.outcome(rank).agreed);
        EXPECT_EQ(world.outcome(rank).agreed->living, (std::vector<int>{2, 3}));
      }
    }
  }
}

// The hosts {2, 3} and {4, 5} cannot communicate with each other, but both can with {0, 1}.
TEST(Agreements, SeparateHostsThatCannotReachEachOther) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    World world(6, seed);
    world.live_on({1, 1, 2, 2, 3, 3});
    if (seed % 2 == 0) {
      world.break_path(3, 4);
    } else {
      world.break_path(4, 3);
    }
    for (int rank = 0; rank < 6; ++rank) {
      world.at(milliseconds(world.random(60)), [&world, rank] { world.start(rank, 1); });
    }
    world.run();
    for (int rank = 0; rank < 6; ++rank) {
      ASSERT_TRUE(world.outcome(rank).agreed);
      EXPECT_EQ(world.outcome(rank).agreed->living, (std::vector<int>{0, 1, 2, 3}));
    }
  }
}

TEST(Agreements, DoNotWaitForever) {
  World world(3, 1);
  world.start(0, 1, milliseconds(500));
  world.start(2, 1, milliseconds(500));
  world.run();
  ASSERT_TRUE(world.outcome(0).error);
  EXPECT_EQ(world.outcome(0).error->code(), ErrorCode::timeout);
  EXPECT_NE(std::string(world.outcome(0).error->what()).find("waiting for rank 1;"),
            std::string::npos)
      << world.outcome(0).error->what();
  EXPECT_TRUE(world.outcome(2).error);
}

TEST(Agreements, CanBeTriedAgain) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    World world(3, seed);
    world.start(0, 1, milliseconds(500));
    world.start(2, 1, milliseconds(500 + world.random(300)));
    world.at(milliseconds(650), [&] { world.start(1, 1); });
    world.at(milliseconds(1000), [&] {
      for (const int rank : {0, 2}) {
        if (!world.outcome(rank).agreed) world.start_again(rank, 1);
      }
    });
    world.run();
    for (int rank = 0; rank < world.size(); ++rank) {
      ASSERT_TRUE(world.outcome(rank).agreed) << "rank " << rank;
      EXPECT_EQ(world.outcome(rank).agreed->living, (std::vector<int>{0, 1, 2}));
    }
  }
}

// In the first case, the launcher has seen rank 0 end, but reports it late. In the second case,
// rank 0 has not ended.
TEST(Agreements, WaitForTheReportThatOthersHaveEnded) {
  for (const bool has_ended : {true, false}) {
    World world(2, 1);
    world.have_launcher();
    world.start(1, 1);
    world.at(milliseconds(20), [&] { world.hear_of(1, 0, false); });
    if (has_ended) world.at(milliseconds(3000), [&] { world.hear_of(1, 0, true); });
    world.run();
    EXPECT_EQ(world.outcome(1).agreed.has_value(), has_ended);
    EXPECT_EQ(world.outcome(1).error.has_value(), !has_ended);
  }
}

}  // namespace
}  // namespace tutti::bootstrap
