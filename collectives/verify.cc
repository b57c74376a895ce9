#include "collectives/verify.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "collectives/expression.h"
#include "collectives/form.h"
#include "collectives/plan.h"
#include "collectives/symbolic_run.h"

namespace tutti {

namespace {

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

// The input chunk, and the rank it comes from where the collective does not reduce, that is due in
// an output chunk.
struct Due {
  int32_t chunk;
  int32_t rank;
};

Due due_in(const Plan& plan, int32_t output_chunk) {
  const int32_t block = chunks_per_block(plan.collective, plan.program);
  switch (plan.collective) {
    case Collective::all_gather:
      return {.chunk = output_chunk % block, .rank = output_chunk / block};
    case Collective::reduce_scatter:
      return {.chunk = plan.shape.rank * block + output_chunk, .rank = -1};
    default:
      return {.chunk = output_chunk, .rank = plan.shape.root};
  }
}

// What is wrong with the result in an output chunk, or "".
std::string wrong_result(const Plan& plan, int32_t chunk, Expressions::Id value,
                         Expressions& expressions) {
  const Due due = due_in(plan, chunk);
  if (value == Expressions::kNothing) return "missing contribution: nothing is written to it";
  if (expressions.chunk_of(value) != due.chunk) {
    return cat("wrong chunk: it ends up with input chunk ", expressions.chunk_of(value), ", not ",
               due.chunk);
  }
  if (reduces(plan.collective)) {
    const std::vector<int> missing = expressions.missing(value);
    if (missing.empty()) return {};
    return cat("missing contribution: it lacks input of rank ", rank_ranges(missing));
  }
  if (value == expressions.leaf(due.rank, due.chunk)) return {};
  return cat("wrong chunk: it ends up with input of rank ",
             rank_ranges(expressions.contributors(value)), ", not of rank ", due.rank);
}

void check_result(const Plan& plan, int32_t chunk, const SymbolicRun::Cell& cell,
                  Expressions& expressions) {
  const std::string problem = wrong_result(plan, chunk, cell.value, expressions);
  if (problem.empty()) return;
  const int32_t rank = plan.shape.rank;
  throw Refusal{cat(cell.writer < 0 ? cat("rank ", rank) : place(plan.program, rank, cell.writer),
                    ": output[", chunk, "]: ", problem)};
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

Grade check_run(std::span<const Plan> plans, bool in_place) {
  const Collective collective = plans[0].collective;
  Expressions expressions(static_cast<int32_t>(plans.size()));
  SymbolicRun run(plans, in_place, expressions);
  run.to_the_end();
  if (collective == Collective::barrier) {
    check_barrier(run, static_cast<int32_t>(plans.size()));
    return Grade::canonical;
  }
  Grade grade = Grade::canonical;
  for (const Plan& plan : plans) {
    const int32_t rank = plan.shape.rank;
    if (collective == Collective::reduce && rank != plan.shape.root) continue;
    for (int32_t chunk = 0; chunk < plan.program.output_chunks; ++chunk) {
      const SymbolicRun::Cell& cell = run.result(rank, chunk);
      check_result(plan, chunk, cell, expressions);
      if (!reduces(collective)) continue;
      if (cell.value != expressions.canonical(due_in(plan, chunk).chunk)) {
        grade = std::min(grade, Grade::same_bits);
      }
      const bool shared = collective == Collective::all_reduce;
      if (shared && cell.value != run.result(0, chunk).value) grade = Grade::correct;
    }
  }
  return grade;
}

}  // namespace

Verdict verify(Collective collective, std::span<const Program> programs, int32_t root) {
  const auto ranks = static_cast<int32_t>(programs.size());
  if (ranks == 0 || root < 0 || root >= ranks) {
    return {.problem = cat("there is no root ", root, " among ", ranks, " ranks")};
  }
  try {
    check_steps(collective, programs, root);
    std::vector<Plan> plans;
    plans.reserve(ranks);
    for (int32_t rank = 0; rank < ranks; ++rank) {
      plans.push_back(
          make_plan(collective, {.ranks = ranks, .rank = rank, .root = root}, programs[rank]));
    }
    check_messages(collective, plans);
    const Grade apart = check_run(plans, false);
    return {.grade = std::min(apart, check_run(plans, true))};
  } catch (const Refusal& refusal) {
    return {.problem = refusal.problem};
  }
}

Verdict verify(const Algorithm& algorithm, int32_t ranks, int32_t root) {
  const std::string reason = algorithm.supports(ranks);
  if (!reason.empty()) return {.problem = reason};
  std::vector<Program> programs;
  programs.reserve(ranks);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    programs.push_back(algorithm.emit({.ranks = ranks, .rank = rank, .root = root}));
  }
  return verify(algorithm.collective, programs, root);
}

}  // namespace tutti
