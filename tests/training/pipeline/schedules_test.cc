// Tests the tables of each kind of schedule over its whole range of shapes: their contents and
// order, that they can run, and the number of micro-batches in flight. check_test.cc tests plans
// that are made of them.
#include "training/pipeline/schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {
namespace {

constexpr int kMaxRanks = 16;
constexpr int kMaxMicroBatches = 32;
constexpr int kMaxVirtualStages = 4;

Schedule made(std::string_view name, const Shape& shape) {
  return make_schedule(schedule_named(name), shape);
}

std::string text(const Schedule& schedule, int rank) {
  std::string result;
  for (const Entry& entry : schedule.table[rank]) {
    result += cat(result.empty() ? "" : " ", to_string(entry, schedule.chunks > schedule.ranks));
  }
  return result;
}

// Calls visit(kind, shape) for all kinds, and for all shapes in the range for which the kind has a
// table.
template <typename Visit>
void for_each_shape(Visit visit) {
  for (const ScheduleKind& kind : all_schedules()) {
    for (int p = 1; p <= kMaxRanks; ++p) {
      for (int m = 1; m <= kMaxMicroBatches; ++m) {
        for (int v = 1; v <= (kind.has_virtual_stages ? kMaxVirtualStages : 1); ++v) {
          for (int a = 1; a <= (kind.updates == Updates::flushed ? 1 : m); ++a) {
            const Shape shape{p, m, v, a};
            if (!kind.why_not(shape).empty()) continue;
            visit(kind, shape);
            if (::testing::Test::HasFailure()) {
              FAIL() << kind.name << " p=" << p << " m=" << m << " v=" << v << " a=" << a;
            }
          }
        }
      }
    }
  }
}

bool adds_to_weights(const Entry& entry) {
  return entry.kind == Kind::backward || entry.kind == Kind::backward_weight;
}

// Returns the largest number of micro-batches in flight on this rank, that is between their forward
// and their last backward; each chunk counts separately.
int most_under_way(const Schedule& schedule, int rank) {
  int now = 0;
  int most = 0;
  for (const Entry& entry : schedule.table[rank]) {
    if (entry.kind == Kind::forward) most = std::max(most, ++now);
    if (adds_to_weights(entry)) --now;
  }
  return most;
}

// {kind, micro-batch, chunk} of the entries that have run.
using Done = std::set<std::tuple<Kind, int, int>>;

// Returns true if the entries that `entry` needs are done. In `done`, `backward` also stands for
// backward_input.
bool can_run(const Schedule& schedule, const Entry& entry, const Done& done) {
  const auto [kind, micro_batch, chunk] = entry;
  const auto has = [&](Kind needed, int of_chunk) {
    return done.contains({needed, micro_batch, of_chunk});
  };
  switch (kind) {
    case Kind::forward:
      return chunk == 0 || has(Kind::forward, chunk - 1);
    case Kind::backward_weight:
      return has(Kind::backward, chunk);
    default:
      return has(Kind::forward, chunk) &&
             (chunk == schedule.chunks - 1 || has(Kind::backward, chunk + 1));
  }
}

// Runs all ranks as far as possible. Returns the number of entries that could not run.
size_t left_over(const Schedule& schedule) {
  Done done;
  std::vector<size_t> next(schedule.table.size());
  size_t left = 0;
  for (const auto& entries : schedule.table) left += entries.size();
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < next.size(); ++rank) {
      const std::vector<Entry>& entries = schedule.table[rank];
      while (next[rank] < entries.size() && can_run(schedule, entries[next[rank]], done)) {
        const auto [kind, micro_batch, chunk] = entries[next[rank]++];
        done.insert({kind == Kind::backward_input ? Kind::backward : kind, micro_batch, chunk});
        moved = true;
        --left;
      }
    }
  }
  return left;
}

TEST(Schedules, EveryMicroBatchPassesEveryChunkOnceInEachDirection) {
  for_each_shape([](const ScheduleKind& kind, const Shape& shape) {
    const Schedule schedule = kind.make(shape);
    ASSERT_EQ(schedule.table.size(), static_cast<size_t>(shape.ranks));
    std::map<std::tuple<Kind, int, int>, int> rank_of;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      for (const auto& [kind, micro_batch, chunk] : schedule.table[rank]) {
        ASSERT_TRUE(rank_of.insert({{kind, micro_batch, chunk}, rank}).second);
      }
    }
    const bool split = schedule.has_split_backward();
    const size_t passes = split ? 3 : 2;
    ASSERT_EQ(rank_of.size(), passes * static_cast<size_t>(shape.micro_batches * schedule.chunks));
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
        const auto on = [&, micro_batch = micro_batch](Kind kind) {
          return rank_of.at({kind, micro_batch, chunk});
        };
        const int rank = on(Kind::forward);
        ASSERT_EQ(on(split ? Kind::backward_input : Kind::backward), rank);
        if (split) {
          ASSERT_EQ(on(Kind::backward_weight), rank);
        }
      }
    }
  });
}

TEST(Schedules, EveryPassTakesMicroBatchesInAscendingOrder) {
  for_each_shape([](const ScheduleKind& kind, const Shape& shape) {
    const Schedule schedule = kind.make(shape);
    for (const std::vector<Entry>& entries : schedule.table) {
      std::map<std::pair<Kind, int>, int> last;
      for (const Entry& entry : entries) {
        const auto [place, is_first] = last.insert({{entry.kind, entry.chunk}, entry.micro_batch});
        if (is_first) continue;
        ASSERT_GT(entry.micro_batch, place->second) << describe(entry);
        place->second = entry.micro_batch;
      }
    }
  });
}

TEST(Schedules, RunToTheirEnd) {
  for_each_shape([](const ScheduleKind& kind, const Shape& shape) {
    // Updates do not affect the order, so that one kind of updates is enough.
    if (shape.accumulated == shape.micro_batches || kind.updates == Updates::flushed) {
      ASSERT_EQ(left_over(kind.make(shape)), 0u);
    }
  });
}

TEST(Schedules, KeepTheActivationsOfTheirPapers) {
  for_each_shape([](const ScheduleKind& kind, const Shape& shape) {
    const Schedule schedule = kind.make(shape);
    const int p = shape.ranks;
    const int m = shape.micro_batches;
    const int v = shape.virtual_stages;
    for (int rank = 0; rank < p; ++rank) {
      const int most = most_under_way(schedule, rank);
      if (kind.name == "gpipe") {
        ASSERT_EQ(most, m);
      } else if (kind.name == "zb-h1") {
        ASSERT_EQ(most, std::min(m, p));
      } else if (kind.name == "zb-h2") {
        ASSERT_EQ(most, std::min(m, 2 * p - 1));
      } else if (kind.name == "chimera") {
        const int from_end = std::min(rank, p - 1 - rank);
        ASSERT_LE(most, std::min(m, p / 2 + 1 + from_end));
        if (m % p == 0) {
          ASSERT_EQ(most, p / 2 + 1 + from_end);
        }
      } else if (v > 1) {
        ASSERT_LE(most, std::min(m * v, (v - 1) * p + 2 * (p - 1 - rank) + 1));
      } else {
        ASSERT_EQ(most, std::min(m, p - rank));
      }
    }
  });
}

TEST(Schedules, ChunksAreOnTheRightRanks) {
  for_each_shape([](const ScheduleKind& kind, const Shape& shape) {
    const Schedule schedule = kind.make(shape);
    ASSERT_EQ(schedule.name, kind.name);
    ASSERT_EQ(schedule.ranks, shape.ranks);
    ASSERT_EQ(schedule.micro_batches, shape.micro_batches);
    ASSERT_EQ(schedule.chunks, shape.ranks * shape.virtual_stages);
    ASSERT_EQ(schedule.updates, kind.updates);
    ASSERT_EQ(schedule.accumulated, shape.accumulated);
    for (int rank = 0; rank < shape.ranks; ++rank) {
      for (const Entry& entry : schedule.table[rank]) {
        const bool is_up =
            kind.name == "chimera" && entry.micro_batch >= (shape.micro_batches + 1) / 2;
        ASSERT_EQ(is_up ? shape.ranks - 1 - entry.chunk : entry.chunk % shape.ranks, rank);
      }
    }
  });
}

TEST(Schedules, LookAsDrawn) {
  EXPECT_EQ(text(made("gpipe", {3, 2}), 1), "F0 F1 B0 B1");
  EXPECT_EQ(text(made("1f1b", {3, 5}), 0), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(text(made("1f1b", {3, 5}), 2), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  EXPECT_EQ(text(made("interleaved", {2, 2, 2}), 0), "F0.0 F1.0 F0.2 F1.2 B0.2 B1.2 B0.0 B1.0");
  EXPECT_EQ(text(made("interleaved", {2, 2, 2}), 1), "F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 B0.1 B1.1");
  EXPECT_EQ(text(made("zb-h1", {3, 5}), 1), "F0 F1 I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4");
  EXPECT_EQ(text(made("zb-h2", {3, 6}), 1),
            "F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5");
  EXPECT_EQ(text(made("chimera", {4, 4}), 0), "F0 F1 F2 B2 F3 B3 B0 B1");
  EXPECT_EQ(text(made("chimera", {4, 4}), 2), "F2 F0 F3 F1 B0 B2 B1 B3");
}

TEST(Schedules, AsynchronousOnesHaveTheOrderOfOneFOneB) {
  const Schedule flushed = made("1f1b", {4, 12});
  EXPECT_EQ(made("pipedream", {4, 12}).table, flushed.table);
  EXPECT_EQ(made("pipedream-2bw", {4, 12, 1, 4}).table, flushed.table);
}

// Evaluates the condition of Updates::delayed on the table: when the forwards of update u begin,
// the weights after update u - 2 must exist.
bool has_delayed_weights(const Schedule& schedule) {
  return std::ranges::all_of(schedule.table, [&](const std::vector<Entry>& entries) {
    int backwards = 0;
    for (const Entry& entry : entries) {
      const int needed = entry.micro_batch / schedule.accumulated - 1;  // updates that must be done
      if (entry.kind == Kind::backward) ++backwards;
      if (entry.kind == Kind::forward && backwards / schedule.accumulated < needed) return false;
    }
    return true;
  });
}

TEST(Schedules, TwoVersionsSufficeExactlyForTheShapesOfPipedream2bw) {
  const ScheduleKind& kind = schedule_named("pipedream-2bw");
  int refused = 0;
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      for (int a = 1; a <= m; ++a) {
        if (m % a != 0) continue;
        // The table has three times as many micro-batches, so that an update needs the weights of
        // an earlier one. The first two updates do not.
        const bool is_offered = kind.why_not({p, m, 1, a}).empty();
        EXPECT_EQ(is_offered, has_delayed_weights(pipedream_2bw(p, 3 * m, a)))
            << "p=" << p << " m=" << m << " a=" << a;
        refused += !is_offered;
      }
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(Schedules, AsynchronousOnesKeepAsManyVersionsAsTheirPapersSay) {
  for_each_shape([](const ScheduleKind& kind, const Shape& shape) {
    if (kind.updates == Updates::flushed) return;
    const Plan plan = make_plan(kind.make(shape));
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const int versions = plan.ranks[rank].versions;
      if (kind.updates == Updates::delayed) {
        ASSERT_LE(versions, 2);
        continue;
      }
      const int in_flight = shape.ranks - rank;
      ASSERT_LE(versions, in_flight);
      // When the pipeline is full, each micro-batch in flight uses its own version.
      if (shape.accumulated == 1 && shape.micro_batches >= 2 * in_flight - 1) {
        ASSERT_EQ(versions, in_flight);
      }
    }
  });
}

TEST(Schedules, RoundUpToTheNextShapeWithATable) {
  const auto rounded = [](std::string_view name, const Shape& shape) {
    return schedule_named(name).round_up(shape);
  };
  EXPECT_EQ(rounded("gpipe", {4, 5}), 5);
  EXPECT_EQ(rounded("interleaved", {4, 5, 2}), 5);
  EXPECT_EQ(rounded("chimera", {4, 1}), 2);
  EXPECT_EQ(rounded("chimera", {4, 5}), 5);
  EXPECT_EQ(rounded("pipedream", {4, 5, 1, 3}), 6);
  EXPECT_EQ(rounded("pipedream-2bw", {4, 6, 1, 3}), 6);
  // The result is minimal: no smaller value has a table.
  for (const ScheduleKind& kind : all_schedules()) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      for (int a = 1; a <= (kind.updates == Updates::flushed ? 1 : 8); ++a) {
        Shape shape{2, m, 1, a};
        const int enough = kind.round_up(shape);
        for (; shape.micro_batches < enough; ++shape.micro_batches) {
          EXPECT_NE(kind.why_not(shape), "") << kind.name << " m=" << m << " a=" << a;
        }
        EXPECT_EQ(kind.why_not(shape), "") << kind.name << " m=" << m << " a=" << a;
      }
    }
  }
}

TEST(Schedules, HaveNamesAndAliases) {
  std::vector<std::string_view> names;
  for (const ScheduleKind& kind : all_schedules()) {
    names.push_back(kind.name);
    EXPECT_EQ(&schedule_named(kind.name), &kind);
    EXPECT_FALSE(kind.what.empty());
  }
  EXPECT_EQ(names, (std::vector<std::string_view>{"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2",
                                                  "chimera", "pipedream", "pipedream-2bw"}));
  const std::pair<std::string_view, std::string_view> aliases[] = {
      {"GPipe", "gpipe"},
      {"1F1B", "1f1b"},
      {"one_f_one_b", "1f1b"},
      {"pipedream-flush", "1f1b"},
      {"interleaved-1f1b", "interleaved"},
      {"zbh1", "zb-h1"},
      {"ZB_H2", "zb-h2"},
      {"zero_bubble_h1", "zb-h1"},
      {"2bw", "pipedream-2bw"},
      {"PipeDream2BW", "pipedream-2bw"},
  };
  for (const auto& [alias, name] : aliases) EXPECT_EQ(schedule_named(alias).name, name) << alias;
}

// Returns the error for a shape for which this kind has no table.
std::string refusal(std::string_view name, const Shape& shape) {
  try {
    made(name, shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Schedules, RefuseImpossibleShapes) {
  const std::tuple<std::string_view, Shape, std::string_view> cases[] = {
      {"gpipe", {0, 4}, "at least one rank, not 0"},
      {"gpipe", {2, -1}, "at least one micro-batch, not -1"},
      {"interleaved", {2, 4, 0}, "at least one chunk per rank, not 0"},
      {"pipedream", {2, 4, 1, 0}, "at least one micro-batch per update, not 0"},
      {"1f1b", {2, 4, 2}, "only interleaved supports several chunks per rank"},
      {"1f1b", {2, 4, 1, 2}, "only pipedream and pipedream-2bw"},
      {"chimera", {3, 4}, "Chimera requires an even number of ranks, not 3"},
      {"chimera", {4, 1}, "at least two micro-batches"},
      {"pipedream", {2, 5, 1, 2}, "5 micro-batches are not divisible into updates of 2"},
      {"2bw", {8, 18, 1, 6}, "on 8 ranks requires updates of at least 7 micro-batches, not 6"},
  };
  for (const auto& [name, shape, expected] : cases) {
    const std::string said = refusal(name, shape);
    EXPECT_NE(said.find(expected), said.npos) << name << ": " << said;
  }
}

TEST(Schedules, NameTheSchedulesThatThereAre) {
  try {
    schedule_named("gpip");
    FAIL() << "there is no such schedule";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    const std::string said = error.what();
    EXPECT_NE(said.find("unknown pipeline schedule \"gpip\""), said.npos) << said;
    EXPECT_NE(said.find("did you mean gpipe?"), said.npos) << said;
    for (const ScheduleKind& kind : all_schedules()) {
      EXPECT_NE(said.find(kind.name), said.npos) << kind.name;
    }
  }
}

}  // namespace
}  // namespace tutti::training::pipeline
