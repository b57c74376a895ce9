#include "collectives/proof/verify.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/program/arithmetic.h"
#include "collectives/program/plan.h"
#include "collectives/proof/expression.h"
#include "collectives/proof/form.h"
#include "collectives/proof/symbolic_run.h"

namespace tutti {

namespace {

// Expected content of an output chunk: an input chunk of `rank` if the collective does not reduce;
// otherwise that chunk combined over ranks 0 .. `over` - 1.
struct Due {
  int32_t chunk;
  int32_t rank;
  int32_t over;
};

Due due_in(const Plan& plan, int32_t output_chunk) {
  const Shape& shape = plan.shape;
  const int32_t block = chunks_per_block(plan.collective, plan.program, shape.ranks);
  Due due{.chunk = output_chunk, .rank = shape.root, .over = shape.ranks};
  if (has_output_blocks(plan.collective)) {
    due = {.chunk = output_chunk % block, .rank = output_chunk / block, .over = 0};
  }
  if (has_input_blocks(plan.collective)) due.chunk += shape.rank * block;
  if (plan.collective == Collective::scan) due.over = shape.rank + 1;
  if (plan.collective == Collective::exscan) due.over = shape.rank;
  return due;
}

// Describes what is wrong with the result in an output chunk; returns an empty text if nothing is
// wrong.
std::string wrong_result(const Plan& plan, int32_t chunk, Expressions::Id value, bool means,
                         Expressions& expressions) {
  const Due due = due_in(plan, chunk);
  if (value == Expressions::kNothing) return "missing contribution: it is never written";
  if (expressions.chunk_of(value) != due.chunk) {
    return cat("wrong chunk: it ends up with input chunk ", expressions.chunk_of(value), ", not ",
               due.chunk);
  }
  if (expressions.is_mean(value) != means) {
    return means ? "the result is not divided"
                 : "the result is divided, but the call computes no mean";
  }
  if (reduces(plan.collective)) {
    if (expressions.holds_exactly(value, due.over)) return {};
    const std::vector<int> there = expressions.contributors(value);
    std::vector<int> needed(due.over);
    std::iota(needed.begin(), needed.end(), 0);
    std::vector<int> missing;
    std::vector<int> surplus;
    std::ranges::set_difference(needed, there, std::back_inserter(missing));
    std::ranges::set_difference(there, needed, std::back_inserter(surplus));
    if (missing.empty()) return cat("surplus contribution: input of rank ", rank_ranges(surplus));
    return cat("missing contribution: it lacks input of rank ", rank_ranges(missing));
  }
  if (value == expressions.leaf(due.rank, due.chunk)) return {};
  return cat("wrong chunk: it ends up with input of rank ",
             rank_ranges(expressions.contributors(value)), ", not of rank ", due.rank);
}

void check_result(const Plan& plan, int32_t chunk, const SymbolicRun::Cell& cell, bool means,
                  Expressions& expressions) {
  const std::string problem = wrong_result(plan, chunk, cell.value, means, expressions);
  if (problem.empty()) return;
  const int32_t rank = plan.shape.rank;
  throw Refusal{cat(cell.writer < 0 ? cat("rank ", rank) : place(plan.program, rank, cell.writer),
                    ": output[", chunk, "]: ", problem)};
}

// Checks that rank 0 of an exscan does not write its output.
void check_untouched(const Plan& plan, int32_t chunk, const SymbolicRun::Cell& cell) {
  if (cell.writer < 0) return;
  throw Refusal{cat(place(plan.program, plan.shape.rank, cell.writer), ": output[", chunk,
                    "]: surplus contribution: rank 0 of an exscan has no result")};
}

void check_barrier(const SymbolicRun& run, int32_t ranks) {
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const std::vector<bool> known = run.known(rank);
    for (int32_t other = 0; other < ranks; ++other) {
      if (!known[other]) {
        throw Refusal{cat("rank ", rank, ": missing contribution: it leaves the barrier without ",
                          "knowing that rank ", other, " has entered")};
      }
    }
  }
}

Verdict check_run(std::span<const Plan> plans, bool in_place, Arithmetic arithmetic) {
  const Collective collective = plans[0].collective;
  Expressions expressions(static_cast<int32_t>(plans.size()));
  SymbolicRun run(plans, in_place, arithmetic, expressions);
  run.to_the_end();
  if (collective == Collective::barrier) {
    check_barrier(run, static_cast<int32_t>(plans.size()));
    return {.grade = Grade::canonical};
  }
  Grade grade = Grade::canonical;
  int32_t roundings = 0;
  for (const Plan& plan : plans) {
    const int32_t rank = plan.shape.rank;
    if (!has_space(collective, plan.shape, Space::output)) continue;
    for (int32_t chunk = 0; chunk < plan.program.output_chunks; ++chunk) {
      const SymbolicRun::Cell& cell = run.result(rank, chunk);
      if (collective == Collective::exscan && rank == 0) {
        check_untouched(plan, chunk, cell);
        continue;
      }
      check_result(plan, chunk, cell, arithmetic == Arithmetic::means, expressions);
      if (!reduces(collective)) continue;
      roundings = std::max(roundings, expressions.roundings(cell.value));
      const int32_t over = due_in(plan, chunk).over;
      if (!expressions.is_canonical(cell.value, over)) grade = std::min(grade, Grade::same_bits);
      const bool shared = collective == Collective::all_reduce;
      if (shared && cell.value != run.result(0, chunk).value) grade = Grade::correct;
    }
  }
  return {.grade = grade, .roundings = roundings};
}

}  // namespace

Verdict verify(Collective collective, std::vector<Program> programs, const Proof& proof) {
  const auto ranks = static_cast<int32_t>(programs.size());
  if (ranks == 0 || proof.root < 0 || proof.root >= ranks) {
    return {.problem = cat("root ", proof.root, " is not one of the ", ranks, " ranks")};
  }
  try {
    check_steps(collective, programs, proof.root);
    if (proof.direct) check_direct(programs);
    std::vector<Plan> plans;
    plans.reserve(ranks);
    for (int32_t rank = 0; rank < ranks; ++rank) {
      plans.push_back(make_plan(collective, {.ranks = ranks, .rank = rank, .root = proof.root},
                                std::move(programs[rank])));
    }
    check_messages(collective, plans);
    const Verdict apart = check_run(plans, false, proof.arithmetic);
    const Verdict in_place = check_run(plans, true, proof.arithmetic);
    return {.grade = std::min(apart.grade, in_place.grade),
            .roundings = std::max(apart.roundings, in_place.roundings)};
  } catch (const Refusal& refusal) {
    return {.problem = refusal.problem};
  }
}

Verdict verify(const Algorithm& algorithm, const Shape& shape, Arithmetic arithmetic) {
  const std::string reason = why_unsupported(algorithm, shape);
  if (!reason.empty()) return {.problem = reason};
  return verify(algorithm.collective, emit_all(algorithm, shape, arithmetic),
                {.root = shape.root, .direct = algorithm.direct, .arithmetic = arithmetic});
}

}  // namespace tutti
