#include "collectives/interchange/threadblock.h"

namespace tutti {

MscclRange passing_range(int32_t& passing, int32_t count) {
  const int32_t first = passing;
  passing += count;
  return {.buffer = Placement::kPassing, .first = first, .count = count};
}

std::vector<Action> actions_of(const MscclThreadblock& threadblock, int32_t& passing) {
  using Type = MscclStep::Type;
  std::vector<Action> actions;
  for (size_t i = 0; i < threadblock.steps.size(); ++i) {
    const MscclStep& step = threadblock.steps[i];
    const auto add = [&](StepKind kind, const MscclRange& src, const MscclRange& dst,
                         const MscclRange& src2 = {}) {
      actions.push_back(
          {.kind = kind, .src = src, .src2 = src2, .dst = dst, .step = static_cast<int32_t>(i)});
    };
    switch (step.type) {
      case Type::nop:
        actions.push_back({.is_nop = true, .step = static_cast<int32_t>(i)});
        break;
      case Type::cpy:
        add(StepKind::copy, step.src, step.dst);
        break;
      case Type::re:
        add(StepKind::reduce, step.dst, step.dst, step.src);
        break;
      case Type::s:
        add(StepKind::send, step.src, {});
        break;
      case Type::r:
        add(StepKind::recv, {}, step.dst);
        break;
      case Type::rcs:
        add(StepKind::recv, {}, step.dst);
        add(StepKind::send, step.dst, {});
        break;
      case Type::rrc:
        add(StepKind::recv_reduce, step.src, step.dst);
        break;
      case Type::rrcs:
        add(StepKind::recv_reduce, step.src, step.dst);
        add(StepKind::send, step.dst, {});
        break;
      case Type::rrs: {
        const MscclRange sum = passing_range(passing, step.src.count);
        add(StepKind::recv_reduce, step.src, sum);
        add(StepKind::send, sum, {});
        break;
      }
    }
  }
  return actions;
}

}  // namespace tutti
