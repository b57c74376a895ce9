#include "tests/collectives/random_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/group.h"
#include "tests/collectives/random_calls.h"

namespace tutti::testing {

namespace {

enum class Form { blocking, async, prepared, grouped };
constexpr Form kAllForms[] = {Form::blocking, Form::async, Form::prepared, Form::grouped};
constexpr std::string_view kFormNames[] = {"blocking", "async", "prepared", "grouped"};

void make_calls(Communicator& comm, Form form, std::vector<RankCall>& calls, uint64_t seed) {
  std::vector<Work> works;
  std::vector<Prepared> prepared;
  if (form == Form::grouped) group_begin();
  for (RankCall& call : calls) {
    std::vector<Request> requests = call.requests();
    const bool exchange = requests.size() > 1;  // a send and a receive, which must run together
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

}  // namespace

void run_batch(Communicator& comm, uint64_t seed) {
  Random random(seed);
  const Form form = random.pick(kAllForms);
  std::vector<Case> cases(1 + random.below(4));
  for (Case& c : cases) c = draw_case(random, comm.size(), 1 << 20);
  std::vector<RankCall> calls;
  for (size_t i = 0; i < cases.size(); ++i) {
    calls.emplace_back(cases[i], comm.rank(), seed + 100 * i + comm.size());
  }
  // Other ranks may read registered memory in place.
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

}  // namespace tutti::testing
