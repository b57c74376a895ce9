#include "collectives/runtime/waiting/survivors.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/mix_bits.h"
#include "base/text.h"
#include "collectives/runtime/waiting/times.h"

namespace tutti::internal {

namespace {

// Time for an agreement if TUTTI_TIMEOUT sets no limit.
constexpr std::chrono::hours kAsGoodAsNever(24 * 365);

}  // namespace

Agreed agree_over_control(Engine& engine, uint64_t communicator, uint32_t number,
                          const Contribution& contribution, std::chrono::nanoseconds timeout) {
  require_in(contribution.members, engine.control());
  const auto limit = timeout == timeout.zero() || timeout > kAsGoodAsNever
                         ? std::chrono::nanoseconds(kAsGoodAsNever)
                         : timeout;
  std::future<AgreementEnd> end =
      engine.control().agree(communicator, number, contribution,
                             std::chrono::duration_cast<std::chrono::milliseconds>(limit));
  // Interval of progress on other calls. The wait ends at once when the agreement does.
  const auto look = [&] {
    return engine.active().count() > 0 ? kLook : std::chrono::microseconds(kLookAtNothing);
  };
  while (end.wait_for(look()) != std::future_status::ready) {
    if (engine.active().count() > 0) engine.progress_others(nullptr);
    engine.callbacks().run();
    if (engine.callbacks().has_hook()) engine.callbacks().call_hook();
  }
  try {
    return agreed_in(end.get());
  } catch (const std::future_error&) {
    throw Error(ErrorCode::internal, "the control channel has failed: no agreement is possible",
                {.cause = engine.last_failure()});
  }
}

void require_in(const std::vector<int>& living, const Control& control) {
  const int own = control.rank();
  if (std::ranges::find(living, own) != living.end()) return;
  throw Error(
      ErrorCode::connection_lost, cat("the others continue without ", control.describe(own)),
      {.cause = "that rank was unreachable, or its host and another host cannot reach each other",
       .remedy = "check the network between the hosts",
       .rank = own});
}

std::shared_ptr<CommunicatorImpl> MadeTogether::take(bool all_have_made_it) {
  if (all_have_made_it) return std::move(communicator_);
  throw problem_.value_or(Error(ErrorCode::aborted,
                                "another rank could not create the communicator of the survivors",
                                {.remedy = "see the errors of the other ranks"}));
}

MemberChanges<MadeTogether>::Agree Survivors::over_control() const {
  return [this](uint32_t number, const Contribution& contribution) {
    return agree_over_control(*engine_, id_, number, contribution, timeout_);
  };
}

Agreed Survivors::agree(uint64_t flags) {
  const std::lock_guard one_at_a_time(mutex_);
  return changes_.agree(flags, over_control());
}

std::shared_ptr<CommunicatorImpl> Survivors::shrink() {
  const std::lock_guard one_at_a_time(mutex_);
  const Control::Making making(engine_->control());
  auto changed = changes_.change([] { return ~uint64_t{0}; }, over_control(),
                                 [this](const Agreed& left) { return make_of(left); });
  return changed->made.take(changed->by_all);
}

MadeTogether Survivors::make_of(const Agreed& left) const {
  require_in(left.living, engine_->control());
  std::vector<int> gone;
  for (const int rank : members_) {
    if (std::ranges::find(left.living, rank) == left.living.end()) gone.push_back(rank);
  }
  engine_->control().settle_deaths(gone);
  uint64_t id = id_;
  for (const uint64_t part : {uint64_t{0x73687269'6e6bU}, uint64_t{changes_.agreements()}}) {
    id = mix_bits(id + part + kGolden);
  }
  return make_(id, left.living, epoch_ + changes_.agreements());
}

// Adds spares. Every active rank must be a member (or have died or left), because all active ranks
// take part in the agreement, and a non-member would not call grow().
std::shared_ptr<CommunicatorImpl> Survivors::grow(int count) {
  Control& control = engine_->control();
  for (const int rank : engine_->spares().active()) {
    const bool gone = control.has_died(rank) || control.has_left(rank);
    if (gone || std::ranges::find(members_, rank) != members_.end()) continue;
    throw Error(ErrorCode::invalid_argument,
                cat(control.describe(rank),
                    " is active in the job, but is not a member of the communicator to grow"),
                {.remedy = "grow a communicator that has all surviving ranks as members"});
  }
  Spares& spares = engine_->spares();
  const int size = static_cast<int>(members_.size()) + count;
  try {
    auto grown = spares.grow(*engine_, make_, {.epoch = epoch_, .ranks = size}, timeout_);
    grow_failed_ = false;
    return grown;
  } catch (...) {
    grow_failed_ = spares.unfinished();
    throw;
  }
}

}  // namespace tutti::internal
