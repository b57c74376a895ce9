#include "collectives/runtime/waiting/spares.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>

#include "base/mix_bits.h"
#include "collectives/runtime/waiting/engine.h"
#include "collectives/runtime/waiting/survivors.h"

namespace tutti::internal {
namespace {

// Id of agreements among all ranks, in place of the id of a communicator.
constexpr uint64_t kEverybody = 0x6576'6572'7962'6f64;
// Flags of a spare. All bits are set, so that the bitwise AND is the target of the active ranks.
constexpr uint64_t kAsOthersSay = ~uint64_t{0};

uint64_t to_flags(const Spares::Target& target) {
  return target.epoch << 32 | static_cast<uint32_t>(target.ranks);
}

Spares::Target to_target(uint64_t flags) {
  return {.epoch = flags >> 32, .ranks = static_cast<int>(static_cast<uint32_t>(flags))};
}

void keep_those_in(std::vector<int>& ranks, const std::vector<int>& living) {
  std::erase_if(ranks, [&](int rank) { return !std::ranges::binary_search(living, rank); });
}

std::vector<int> ranks_below(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Spares::Spares(int size, int spares) : changes_(ranks_below(size)) {
  const std::vector<int>& all = changes_.members();
  active_.assign(all.begin(), all.end() - spares);
  waiting_.assign(all.end() - spares, all.end());
}

bool Spares::is_active(int rank) const { return std::ranges::find(active_, rank) != active_.end(); }

std::shared_ptr<CommunicatorImpl> Spares::grow(Engine& engine, const MakeTogether& make,
                                               Target target, std::chrono::nanoseconds timeout) {
  const Control::Making making(engine.control());
  target_ = target;
  for (;;) {
    auto changed = changes_.change(
        [&] { return is_active(engine.control().rank()) ? to_flags(target_) : kAsOthersSay; },
        [&](uint32_t number, const Contribution& contribution) {
          return agree_over_control(engine, kEverybody, number, contribution, timeout);
        },
        [&](const Agreed& left) { return make_of(engine, make, left); });
    if (!changed) return nullptr;
    // A spare that was not selected waits for the next request.
    if (changed->made.communicator) return changed->made.communicator->take(changed->by_all);
  }
}

std::optional<Spares::Grown> Spares::make_of(Engine& engine, const MakeTogether& make,
                                             const Agreed& left) {
  Control& control = engine.control();
  require_in(left.living, control);
  keep_those_in(active_, left.living);
  keep_those_in(waiting_, left.living);
  if (active_.empty()) return std::nullopt;
  target_ = to_target(left.flags);
  const auto missing = std::max<std::ptrdiff_t>(target_.ranks - std::ssize(active_), 0);
  const auto taken = waiting_.begin() + std::min(missing, std::ssize(waiting_));
  active_.insert(active_.end(), waiting_.begin(), taken);
  waiting_.erase(waiting_.begin(), taken);
  std::vector<int> gone;
  std::ranges::set_difference(ranks_below(control.size()), left.living, std::back_inserter(gone));
  control.settle_deaths(gone);
  Grown grown;
  if (is_active(control.rank())) {
    const uint32_t agreements = changes_.agreements();
    grown.communicator = std::make_shared<MadeTogether>(
        make(mix_bits(kEverybody + agreements), active_, target_.epoch + agreements));
  }
  return grown;
}

bool Spares::Grown::made() const { return !communicator || communicator->made(); }

}  // namespace tutti::internal
