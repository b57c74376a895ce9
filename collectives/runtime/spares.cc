#include "collectives/runtime/spares.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "base/mix_bits.h"
#include "collectives/runtime/communicator_impl.h"

namespace tutti::internal {
namespace {

// Of the agreements among all ranks: no communicator's.
constexpr uint64_t kEverybody = 0x6576'6572'7962'6f64;
// What a spare votes, which leaves to the others how many take part.
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

}  // namespace

Spares::Spares(int size, int spares) : all_(static_cast<size_t>(size)) {
  std::iota(all_.begin(), all_.end(), 0);
  const auto first_spare = all_.end() - spares;
  active_.assign(all_.begin(), first_spare);
  waiting_.assign(first_spare, all_.end());
}

bool Spares::is_active(int rank) const { return std::ranges::find(active_, rank) != active_.end(); }

std::shared_ptr<CommunicatorImpl> Spares::grow(const std::shared_ptr<Engine>& engine, Target target,
                                               std::chrono::nanoseconds timeout) {
  Control& control = engine->control();
  for (;;) {
    const Control::Making making(control);
    const bool waits = !is_active(control.rank());
    const auto agree = [&](uint64_t flags) {
      Agreed agreed =
          agree_over_control(*engine, kEverybody, agreements_ + 1, all_, flags, timeout);
      ++agreements_;
      return agreed;
    };
    const Agreed before = agree(waits ? kAsOthersSay : to_flags(target));
    keep_those_in(active_, before.living);
    keep_those_in(waiting_, before.living);
    if (active_.empty()) return nullptr;
    target = to_target(before.flags);
    const auto missing = std::max<std::ptrdiff_t>(target.ranks - std::ssize(active_), 0);
    const auto taken = waiting_.begin() + std::min(missing, std::ssize(waiting_));
    active_.insert(active_.end(), waiting_.begin(), taken);
    waiting_.erase(waiting_.begin(), taken);
    std::vector<int> gone;
    std::ranges::set_difference(all_, before.living, std::back_inserter(gone));
    control.settle_deaths(gone);
    keep_those_in(all_, before.living);  // later agreements are among these

    std::optional<MadeTogether> grown;
    if (is_active(control.rank()))
      grown.emplace(engine, mix_bits(kEverybody + agreements_), active_,
                    target.epoch + agreements_);
    const Agreed after = agree(grown && !grown->made() ? 0 : kAsOthersSay);
    // A spare that was not taken waits for another time.
    if (grown && after.living == before.living) return grown->take(after.flags != 0);
  }
}

}  // namespace tutti::internal
