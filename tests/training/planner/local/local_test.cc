// Tests layouts on this host. The planned traffic and memory must equal those that ranks count
// during training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"
#include "tests/training/data/folder.h"
#include "training/parallel/mesh.h"
#include "training/planner/local/local_search.h"
#include "training/planner/local/local_step.h"
#include "training/planner/local/unit_profiles.h"
#include "training/setup/session.h"
#include "training/setup/settle.h"

namespace tutti::training::planner {
namespace {

using ::testing::HasSubstr;
using tutti::testing::run_ranks;
using Words = std::vector<std::string>;

class Local : public FolderTest {
 protected:
  Words words(const Words& more = {}) const {
    Words all = {"--data=" + text_, "--steps=2",  "--vocabulary=256", "--model=gpt2",
                 "--layers=2",      "--heads=4",  "--width=32",       "--context=16",
                 "--batch=8",       "--workers=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static RunOptions settled_run(const Words& words, int ranks) {
    RunOptions run = parse_run_options(words);
    settle(run, ranks, 1 << 20);
    return run;
  }

 private:
  std::string written() {
    const std::string name = path("text");
    std::ofstream file(name);
    for (int i = 0; i < 4000; ++i) file << static_cast<char>('a' + i * i % 23);
    return name;
  }
  std::string text_ = written();
};

// A unit is profiled alone, on one rank, so that its messages are predicted. The predicted bytes
// must equal those that a run counts.
TEST_F(Local, PredictedTrafficOfUnitsEqualsTheMeasured) {
  const std::vector<Words> layouts = {
      {"--tp=2", "--micro-batch=4"},
      {"--tp=2", "--sp", "--micro-batch=2"},
      {"--tp=4", "--micro-batch=8"},
      {"--cp=2", "--cp-kind=ring", "--micro-batch=4"},
      {"--cp=2", "--cp-kind=heads", "--micro-batch=4"},
      {"--tp=2", "--recompute=full", "--micro-batch=4"},
  };
  for (const Words& layout : layouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const int ranks = layout.front() == "--tp=4" ? 4 : 2;
    const RunOptions run = settled_run(words(layout), ranks);
    const MeshPlace place = mesh_place(run.mesh, ranks);
    UnitProfiles profiles(ranks, 1);
    const auto size = static_cast<int64_t>(run.training.micro_batch);
    const pipeline::Profile& profile = profiles.of(run, place, size);
    double planned = 0;
    for (size_t unit = 0; unit < profile.messages.size(); ++unit) {
      const pipeline::UnitMessages& messages = profile.messages[unit];
      const bool again = run.recompute == "full" && unit > 0 && unit + 1 < profile.messages.size();
      for (const UnsentMessage& one : messages.forward) planned += (again ? 2 : 1) * one.bytes;
      for (const UnsentMessage& one : messages.backward) planned += one.bytes;
    }
    planned *= static_cast<double>(run.training.batch) / static_cast<double>(size);
    run_ranks(ranks, [&](const tutti::Job& job) {
      const auto session = begin_session(Communicator::init(job), words(layout), Json::object());
      const std::optional<StepReport> step = session->trainer().next();
      double sent = 0;
      for (const Axis axis : {Axis::tensor, Axis::context}) {
        sent += step->bytes_by_axis[static_cast<size_t>(axis)];
      }
      if (job.rank == 0) {
        EXPECT_NEAR(planned, sent, 1e-9 * sent);
      }
      while (session->trainer().next()) {
      }
      session->trainer().finish();
    });
  }
}

// One of the layouts has several stages, with the cut of the plan.
TEST_F(Local, PlannedMemoryMatchesTheRanks) {
  LocalQuestion question{.run = parse_run_options(words()), .ranks = 4};
  const Plans plans = search_locally(question);
  ASSERT_GT(plans.considered, 100u);
  int tried = 0;
  for (const PlannedLayout& planned : plans.layouts) {
    const Layout& l = planned.layout;
    const bool wanted =
        (l.stages == 2 && l.data == 2 && l.zero == 1) || (l.data == 4 && l.zero == 3);
    if (!wanted || l.virtual_stages > 1 || l.micro_batch != 2) continue;
    SCOPED_TRACE(to_text(l));
    ++tried;
    std::vector<int64_t> found(4);
    run_ranks(4, [&](const tutti::Job& job) {
      const auto session =
          begin_session(Communicator::init(job), words(train_options(l)), Json::object());
      while (session->trainer().next()) {
      }
      const MemoryReport memory = session->trainer().finish().memory;
      found[static_cast<size_t>(job.rank)] = memory.storage.parameters + memory.storage.gradients +
                                             memory.storage.masters + memory.storage.gathered +
                                             memory.storage.padding + memory.optimizer +
                                             memory.activations + memory.boundaries;
    });
    const auto most = static_cast<double>(*std::ranges::max_element(found));
    // The plan counts two buckets of gathered parameters, but a run may have fewer of them at a
    // time.
    const double more = l.zero == 3 ? 0.15 : 0.02;
    EXPECT_LE(planned.memory.total(), (1 + more) * most);
    EXPECT_GE(planned.memory.total(), 0.98 * most);
  }
  EXPECT_GE(tried, 3);
}

TEST_F(Local, KeepsTheGivenOptions) {
  const LocalQuestion question{.run = parse_run_options(words({"--pp=2", "--zero=1"})), .ranks = 4};
  for (const PlannedLayout& planned : search_locally(question).layouts) {
    EXPECT_EQ(planned.layout.stages, 2);
    EXPECT_EQ(planned.layout.zero, 1);
    EXPECT_EQ(planned.layout.ranks(), 4);
    EXPECT_GT(planned.time.total(), 0);
    // Each planned layout is a valid run.
    EXPECT_NO_THROW(settled_run(words(train_options(planned.layout)), 4));
  }
}

TEST_F(Local, RefusesImpossibleLayouts) {
  const auto error_of = [&](const Words& more, int ranks, double memory = 0) -> std::string {
    try {
      search_locally({.run = parse_run_options(words(more)), .ranks = ranks, .memory = memory});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of({"--tp=3"}, 4), HasSubstr("no layout on 4 ranks is valid"));
  EXPECT_THAT(error_of({"--micro-batches=2"}, 2), HasSubstr("use --batch"));
  EXPECT_THAT(error_of({}, 2, 1000), HasSubstr("no layout fits"));
}

TEST_F(Local, ARunWithALayoutHasItsOptions) {
  const RunOptions run = parse_run_options(words());
  const Layout layout{.data = 2,
                      .tensor = 2,
                      .zero = 2,
                      .sequence_parallel = true,
                      .micro_batch = 4,
                      .recompute = Recompute::full};
  RunOptions changed = with_layout(run, layout);
  settle(changed, 4, 1 << 20);
  const RunOptions told = settled_run(words(train_options(layout)), 4);
  EXPECT_EQ(changed.training.configuration, told.training.configuration);
}

}  // namespace
}  // namespace tutti::training::planner
