#include "training/simulate/parameter_gathers.h"

#include <set>

namespace tutti::training {

std::vector<bool> waits_for_gather(std::span<const pipeline::Entry> row, int zero) {
  std::vector<bool> waits;
  std::set<int> gathered;  // chunks that have been gathered so far
  for (const pipeline::Entry& entry : row) {
    const bool is_forward = entry.kind == pipeline::Kind::forward;
    const bool is_first = is_forward && gathered.insert(entry.chunk).second;
    const bool needs_all = entry.kind != pipeline::Kind::backward_weight;
    waits.push_back(zero >= 3 ? needs_all : zero >= 1 && is_first);
  }
  return waits;
}

void ParameterGathers::add(JointSchedule& joint, const Schedule& all_gather, double bytes,
                           std::span<const int32_t> members, int32_t alike,
                           std::span<const pipeline::Entry> row, int zero) {
  std::vector<Ends>& gathers = groups_.emplace_back();
  const Ends* before = nullptr;
  gathers.reserve(row.size());
  for (const bool waits : waits_for_gather(row, zero)) {
    gathers.emplace_back();
    if (!waits) continue;
    gathers.back() = joint.collective(all_gather, bytes, members);
    for (size_t i = 0; before != nullptr && i < before->size(); ++i) {
      const int32_t rank = members[i * static_cast<size_t>(alike)];
      joint.order(rank, (*before)[i].second, gathers.back()[i].first);
    }
    before = &gathers.back();
  }
}

std::optional<std::pair<ParameterGathers::Step, ParameterGathers::Step>> ParameterGathers::of(
    size_t group, size_t entry, size_t member) const {
  if (groups_.empty() || groups_[group][entry].empty()) return std::nullopt;
  return groups_[group][entry][member];
}

}  // namespace tutti::training
