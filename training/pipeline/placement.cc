#include "training/pipeline/placement.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "training/pipeline/partition.h"

namespace tutti::training::pipeline {
namespace {

std::vector<UnitRange> cut_units(const std::vector<int>& cut, int chunks, int units) {
  bool good = std::ssize(cut) == chunks && !cut.empty() && cut.front() == 0 && cut.back() < units;
  for (size_t i = 1; i < cut.size(); ++i) good = good && cut[i - 1] < cut[i];
  if (!good) {
    std::string text;
    for (const int first : cut) text += cat(text.empty() ? "" : ",", first);
    throw Error(
        ErrorCode::invalid_argument,
        cat("a model of ", units, " units cannot be divided into ", chunks,
            " chunks that start at units ", text),
        {.remedy = "specify the first unit of each chunk in ascending order, starting with 0"});
  }
  std::vector<UnitRange> ranges;
  for (size_t i = 0; i < cut.size(); ++i) {
    ranges.push_back({cut[i], i + 1 < cut.size() ? cut[i + 1] : units});
  }
  return ranges;
}

int chunk_of(const std::vector<UnitRange>& chunks, int unit) {
  int chunk = 0;
  while (chunks[static_cast<size_t>(chunk)].end <= unit) ++chunk;
  return chunk;
}

// Adds tied parameters whose other use is on another rank.
void add_shared(const Plan& plan, Model& model, Placement& placement) {
  const auto holders = [&](int unit) -> const std::vector<int>& {
    return plan.holders[static_cast<size_t>(chunk_of(placement.chunks, unit))];
  };
  // parameters that any two ranks share, so that all ranks find the same faults
  std::set<int> crossing;
  for (const SharedUse& use : model.parameters().shared_uses()) {
    const ParameterSpec& spec = model.parameters().specs()[static_cast<size_t>(use.parameter)];
    const std::vector<int>& first = holders(spec.unit);
    const std::vector<int>& second = holders(use.unit);
    if (first == second) continue;
    placement.has_shared_across = true;
    const bool simple =
        first.size() == 1 && second.size() == 1 && crossing.insert(use.parameter).second;
    if (!simple) {
      throw Error(ErrorCode::invalid_argument,
                  cat("the parameter ", spec.name, " is shared by more than two stages"),
                  {.remedy = "divide the model so that its uses are on two ranks, or untie it"});
    }
    if (placement.holders == first) {
      placement.joined.push_back({use.parameter, second.front()});
    } else if (placement.holders == second) {
      placement.joined.push_back({use.parameter, first.front()});
      placement.copies.push_back(use.parameter);
    }
  }
}

}  // namespace

bool Placement::has_unit(int unit) const {
  return std::ranges::any_of(own_chunks, [&](int chunk) {
    const UnitRange& range = chunks[static_cast<size_t>(chunk)];
    return unit >= range.begin && unit < range.end;
  });
}

Placement make_placement(const Plan& plan, Model& model, const std::vector<int>& cut, int rank) {
  Placement placement;
  placement.chunks = cut_units(cut, plan.schedule.chunks, static_cast<int>(model.units().size()));
  placement.own_chunks = plan.ranks[static_cast<size_t>(rank)].chunks;
  placement.holders = plan.holders[static_cast<size_t>(placement.own_chunks.front())];
  std::set<int> parameters;
  for (const int chunk : placement.own_chunks) {
    const UnitRange& units = placement.chunks[static_cast<size_t>(chunk)];
    for (int unit = units.begin; unit < units.end; ++unit) {
      const std::vector<int>& used = model.parameters().used_by(unit);
      parameters.insert(used.begin(), used.end());
    }
  }
  placement.parameters.assign(parameters.begin(), parameters.end());
  add_shared(plan, model, placement);
  return placement;
}

std::vector<int64_t> passes_by_unit(const Plan& plan, const Placement& placement, int rank,
                                    int units) {
  std::vector<int64_t> passes(static_cast<size_t>(units));
  for (const Entry& entry : plan.schedule.table[static_cast<size_t>(rank)]) {
    if (!makes_weight_gradient(entry)) continue;
    const UnitRange& range = placement.chunks[static_cast<size_t>(entry.chunk)];
    for (int unit = range.begin; unit < range.end; ++unit) ++passes[static_cast<size_t>(unit)];
  }
  return passes;
}

std::vector<double> estimated_costs(Model& model) {
  std::vector<double> costs;
  for (int unit = 0; unit < static_cast<int>(model.units().size()); ++unit) {
    double cost = 0;
    if (!model.units()[static_cast<size_t>(unit)]->backward_needs_nothing()) {
      for (const int parameter : model.parameters().used_by(unit)) {
        const ParameterSpec& spec = model.parameters().specs()[static_cast<size_t>(parameter)];
        if (spec.shape.size() >= 2) cost += static_cast<double>(spec.local_count());
      }
    }
    costs.push_back(cost);
  }
  return costs;
}

std::vector<int> estimated_cut(Model& model, int chunks) {
  return balanced_cut(estimated_costs(model), chunks);
}

}  // namespace tutti::training::pipeline
