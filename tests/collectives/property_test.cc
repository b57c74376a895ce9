// Random calls against a serial reference (bench/layout.h): every collective, algorithm, type and
// operator, awkward counts and addresses, in and out of place, in every form of call.
//
//   PROPERTY_SEED=N in the environment starts from another seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "collectives/group.h"
#include "tests/collectives/random_calls.h"
#include "tests/support/fabrics.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

using testing::Case;
using testing::Random;
using testing::RankCall;

uint64_t first_seed() {
  const char* text = std::getenv("PROPERTY_SEED");
  return text == nullptr ? 20240229 : std::strtoull(text, nullptr, 10);
}

enum class Form { blocking, async, prepared, grouped };
constexpr Form kAllForms[] = {Form::blocking, Form::async, Form::prepared, Form::grouped};
constexpr std::string_view kFormNames[] = {"blocking", "async", "prepared", "grouped"};

void make_calls(Communicator& comm, Form form, std::vector<RankCall>& calls, uint64_t seed) {
  std::vector<Work> works;
  std::vector<Prepared> prepared;
  if (form == Form::grouped) group_begin();
  for (RankCall& call : calls) {
    std::vector<Request> requests = call.requests();
    const bool exchange = requests.size() > 1;  // a send and a receive
    if (exchange && form == Form::blocking) group_begin();
    for (Request& request : requests) {
      if (form == Form::async) {
        works.push_back(comm.start(std::move(request), call.options()));
      } else if (form == Form::prepared) {
        prepared.push_back(comm.prepare(std::move(request), call.options()));
      } else {
        comm.run(std::move(request), call.options());
      }
    }
    if (exchange && form == Form::blocking) group_end();
  }
  if (form == Form::grouped) group_end();
  const bool twice = std::ranges::all_of(calls, &RankCall::repeatable);
  for (int round = 0; round < (twice ? 2 : 1) && !prepared.empty(); ++round) {
    for (Prepared& call : prepared) works.push_back(call.start());
    testing::wait_for_all(works, seed + round);
    works.clear();
  }
  testing::wait_for_all(works, seed);
}

void run_batch(Communicator& comm, uint64_t seed) {
  Random random(seed);
  const Form form = random.pick(kAllForms);
  std::vector<Case> cases(1 + random.below(4));
  for (Case& c : cases) c = draw_case(random, comm.size(), 1 << 20);
  std::vector<RankCall> calls;
  for (size_t i = 0; i < cases.size(); ++i) {
    calls.emplace_back(cases[i], comm.rank(), seed + 100 * i + comm.size());
  }
  // Memory that is registered is read by the other ranks where it lies.
  const bool registers = random.one_in(2);
  std::vector<Registration> registrations;
  for (RankCall& call : calls) {
    for (const std::span<std::byte> memory : call.memory()) {
      if (registers) registrations.push_back(comm.register_memory(memory.data(), memory.size()));
    }
  }
  const auto context = [&](size_t i) {
    return cat("seed ", seed, ", ", registers ? "registered, " : "",
               kFormNames[static_cast<size_t>(form)], " call ", i + 1, " of ", cases.size(),
               ", rank ", comm.rank(), ": ", describe(cases[i]));
  };
  try {
    make_calls(comm, form, calls, seed * 31 + comm.rank());
  } catch (const Error& error) {
    for (size_t i = 0; i < cases.size(); ++i) ADD_FAILURE() << error.what() << "\n  " << context(i);
    throw;
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].problem(), "") << context(i);
  }
}

class Property : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override {
    const std::string problem = testing::lacks(std::get<0>(GetParam()));
    if (!problem.empty()) GTEST_SKIP() << problem;
    settings().set("TUTTI_TRANSPORT", std::get<0>(GetParam()));
  }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(All, Property,
                         ::testing::Combine(::testing::Values("shm", "tcp"),
                                            ::testing::Values(1, 2, 3, 4, 5, 7, 8, 16)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

// Init takes longer than with the others.
INSTANTIATE_TEST_SUITE_P(Fabrics, Property,
                         ::testing::Combine(::testing::Values("ucx", "ofi"),
                                            ::testing::Values(2, 3, 5, 8)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

TEST_P(Property, RandomCallsMatchASerialReference) {
  const int ranks = std::get<1>(GetParam());
  const int batches = 1600 / (ranks + 4);
  const uint64_t seed = first_seed() + 1000 * ranks;
  RecordProperty("seed", std::to_string(seed));
  testing::run_ranks(ranks, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (int batch = 0; batch < batches; ++batch) run_batch(comm, seed + batch);
  });
}

}  // namespace
}  // namespace tutti
