#include "tests/collectives/membership_model.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "base/mix_bits.h"
#include "base/text.h"
#include "transport/bootstrap/handshake/frame.h"

namespace tutti::testing {
namespace {

constexpr uint64_t kCommunicator = 7;
// Indices of events in the table of outcomes. Indices of messages follow them.
constexpr uint64_t kCall = 0;
constexpr uint64_t kGiveUp = 1;
constexpr uint64_t kLook = 2;
constexpr uint64_t kDeliver = 3;

// Thrown to suspend a call until its agreement is decided.
struct Suspended {};

std::string text_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += cat(text.empty() ? "" : " ", rank);
  return text;
}

}  // namespace

uint64_t MessageSet::hash() const {
  uint64_t value = 0;
  for (size_t word = 0; word < words_.size(); ++word) {
    if (words_[word] != 0) value = mix_bits(value + words_[word] * kGolden + word);
  }
  return value;
}

uint64_t World::hash() const {
  uint64_t value = alive;
  for (size_t rank = 0; rank < kMostRanks; ++rank) {
    const uint64_t of_rank =
        uint64_t{locals[rank]} << 16 | uint64_t{gone[rank]} << 8 | uint64_t{ended[rank]};
    value = mix_bits((value + of_rank) * kGolden + 1);
  }
  return mix_bits(value + messages.hash());
}

struct Model::Channel final : bootstrap::AgreementChannel {
  Channel(Model& whole, int own) : model(whole), rank(own) {}
  int own_rank() const override { return rank; }
  bool is_rank(int number) const override { return number >= 0 && number < model.bounds_.ranks; }
  std::string name_of(int other) const override { return cat("rank ", other); }
  void send_to(int to, const std::string& frame) override {
    model.sent_.push_back(model.message(to, frame));
  }
  bool has_gone(int other) const override { return has(model.gone_, other); }
  bool has_ended(int other) const override { return has(model.ended_, other); }
  bool reaches(int) const override { return true; }
  std::string_view host_of(int) const override { return {}; }
  bool may_learn_of_ends() const override { return true; }
  Clock::time_point now() const override {
    return Clock::time_point(std::chrono::hours(model.late_ ? 2 : 0));
  }
  void call_after(std::chrono::milliseconds, std::function<void()> what) override {
    model.timers_[static_cast<size_t>(rank)] = std::move(what);
  }

  Model& model;
  const int rank;
};

Model::Model(const Bounds& bounds) : bounds_(bounds) {
  std::vector<int> members;
  for (int rank = 0; rank < bounds.ranks; ++rank) members.push_back(rank);
  for (int rank = 0; rank < bounds.ranks; ++rank) {
    channels_.push_back(std::make_shared<Channel>(*this, rank));
    working_.push_back(
        std::make_unique<Local>(Local{.agreements = bootstrap::Agreements(*channels_.back()),
                                      .changes = internal::MemberChanges<Part>(members),
                                      .answer = {},
                                      .questions = {}}));
    first_.push_back(intern(rank));
  }
}

World Model::begin() {
  World world;
  for (int rank = 0; rank < bounds_.ranks; ++rank) {
    world.locals[static_cast<size_t>(rank)] = first_[static_cast<size_t>(rank)];
    world.alive |= bit(rank);
  }
  for (int rank = 0; bounds_.at_once && rank < bounds_.ranks; ++rank) {
    world = after(world, {Event::Kind::call, rank});
  }
  return world;
}

std::vector<Event> Model::events_of(const World& world) const {
  using enum Event::Kind;
  std::vector<Event> events;
  const auto all = static_cast<Ranks>((1U << bounds_.ranks) - 1);
  const auto dead = static_cast<Ranks>(all & ~world.alive);
  for (int rank = 0; rank < bounds_.ranks; ++rank) {
    if (!has(world.alive, rank)) continue;
    const Local& own = local(world, rank);
    const bool more_calls = own.calls <= bounds_.retries;
    if (more_calls && !own.waits && own.result < 0) events.push_back({call, rank});
    if (more_calls && own.waits) events.push_back({give_up, rank});
    const auto far =
        has(bounds_.side, rank) ? static_cast<Ranks>(all & ~bounds_.side) : bounds_.side;
    const Ranks gone = world.gone[static_cast<size_t>(rank)];
    const bool all_far_gone = (far & ~gone) == 0;
    if (bounds_.at_once && !all_far_gone) events.push_back({lose_sight, rank, far});
    for (int other = 0; other < bounds_.ranks; ++other) {
      const bool may_go =
          (!bounds_.at_once && has(far, other)) || (bounds_.rumours && has(dead, other));
      if (may_go && !has(gone, other)) events.push_back({lose_sight, rank, bit(other)});
      if (has(dead, other) && !has(world.ended[static_cast<size_t>(rank)], other)) {
        events.push_back({hear_of_end, rank, other});
      }
    }
    if (std::popcount(dead) < bounds_.kills) events.push_back({kill, rank});
  }
  world.messages.for_each([&](size_t message) {
    events.push_back({deliver, messages_[message].first, static_cast<int>(message)});
  });
  return events;
}

World Model::after(World world, const Event& event) {
  const auto look = [](Local& local) { local.agreements.look_again(); };
  const auto at = static_cast<size_t>(event.rank);
  switch (event.kind) {
    case Event::Kind::call:
      return apply(std::move(world), event.rank, kCall, [&](Local& local) {
        ++local.calls;
        call(local, event.rank);
      });
    case Event::Kind::give_up:
      return apply(std::move(world), event.rank, kGiveUp, [&](Local& local) {
        late_ = true;
        timers_[at]();
        late_ = false;
        if (bounds_.restarts) local.changes.abandon();
      });
    case Event::Kind::deliver:
      return apply(
          std::move(world), event.rank, kDeliver + static_cast<uint64_t>(event.argument),
          [&](Local& local) {
            const std::string frame = messages_[static_cast<size_t>(event.argument)].second;
            bootstrap::FrameReader reader(std::string_view(frame).substr(sizeof(uint32_t)));
            reader.get<int32_t>();  // destination
            if (!local.agreements.on_frame(reader)) throw std::logic_error("nonsense");
          });
    case Event::Kind::lose_sight:
      world.gone[at] |= static_cast<Ranks>(event.argument);
      return apply(std::move(world), event.rank, kLook, look);
    case Event::Kind::hear_of_end:
      world.gone[at] |= bit(event.argument);
      world.ended[at] |= bit(event.argument);
      return apply(std::move(world), event.rank, kLook, look);
    case Event::Kind::kill:
      // Messages to a dead rank are not delivered. Messages that it has sent are still in flight.
      world.alive &= static_cast<Ranks>(~bit(event.rank));
      world.locals[at] = first_[at];
      world.gone[at] = world.ended[at] = 0;
      for (size_t message = 0; message < messages_.size(); ++message) {
        if (messages_[message].first == event.rank) world.messages.erase(message);
      }
      return world;
  }
  return world;
}

std::string Model::violation(const World& world) const {
  for (int a = 0; a < bounds_.ranks; ++a) {
    for (int b = 0; b < a; ++b) {
      if (!has(world.alive, a) || !has(world.alive, b)) continue;
      const Local& one = local(world, a);
      const Local& other = local(world, b);
      if (one.result >= 0 && other.result >= 0 && one.result != other.result) {
        return cat("rank ", b, " has \"", results_[static_cast<size_t>(other.result)],
                   "\", and rank ", a, " \"", results_[static_cast<size_t>(one.result)], "\"");
      }
      for (size_t n = 0; n < std::min(one.questions.size(), other.questions.size()); ++n) {
        if (one.questions[n] != other.questions[n]) {
          return cat("ranks ", b, " and ", a, " ask different questions in agreement ", n + 1);
        }
      }
    }
  }
  return {};
}

std::string Model::text_of(const Event& event) const {
  switch (event.kind) {
    case Event::Kind::call:
      return cat("rank ", event.rank, " calls");
    case Event::Kind::give_up:
      return cat("rank ", event.rank, " gives up");
    case Event::Kind::deliver:
      return cat("rank ", event.rank, " receives message ", event.argument);
    case Event::Kind::lose_sight:
      return cat("rank ", event.rank, " loses sight of ranks (bits) ", event.argument);
    case Event::Kind::hear_of_end:
      return cat("rank ", event.rank, " hears that rank ", event.argument, " has ended");
    case Event::Kind::kill:
      return cat("rank ", event.rank, " is killed");
  }
  return {};
}

uint16_t Model::message(int to, const std::string& frame) {
  const auto [found, is_new] =
      message_numbers_.try_emplace({to, frame}, static_cast<uint16_t>(messages_.size()));
  if (is_new) messages_.push_back(found->first);
  if (messages_.size() > kMostMessages) throw std::logic_error("more messages than expected");
  return found->second;
}

Agreed Model::agree(Local& local, uint32_t number, const Contribution& contribution) {
  if (local.questions.size() < number) local.questions.push_back(contribution.separates);
  local.questions[number - 1] = contribution.separates;
  if (!local.answer || local.answer->first != number) {
    local.waits = true;
    local.answer.reset();
    local.agreements.start({kCommunicator, number}, contribution, std::chrono::hours(1),
                           [&local, number](const Agreed* agreed, const Error*) {
                             local.waits = false;
                             if (agreed != nullptr) local.answer.emplace(number, *agreed);
                           });
  }
  if (!local.answer) throw Suspended();
  return std::exchange(local.answer, std::nullopt)->second;
}

// Makes the same calls as agree() and shrink() of the runtime. The call of a rank that the others
// have excluded ends.
void Model::call(Local& local, int rank) {
  const auto over_channel = [&](uint32_t number, const Contribution& contribution) {
    return agree(local, number, contribution);
  };
  const uint64_t flags = ~(uint64_t{1} << rank);
  const auto is_in = [rank](const std::vector<int>& left) {
    return std::ranges::find(left, rank) != left.end();
  };
  struct Excluded {};
  try {
    if (!bounds_.change) {
      const Agreed agreed = local.changes.agree(flags, over_channel);
      local.result =
          number_of(cat("flags ", agreed.flags & 31, ", ", testing::text_of(agreed.living)));
      return;
    }
    const auto changed = local.changes.change([flags] { return flags; }, over_channel,
                                              [&](const Agreed& left) {
                                                if (!is_in(left.living)) throw Excluded();
                                                return Part{left.living};
                                              });
    local.result = number_of(cat("after ", local.changes.agreements(), " agreements ",
                                 testing::text_of(changed->made.left)));
  } catch (const Suspended&) {
  } catch (const Excluded&) {
    local.calls = bounds_.retries + 1;
  }
}

int Model::number_of(const std::string& result) {
  auto found = std::ranges::find(results_, result);
  if (found == results_.end()) found = results_.insert(found, result);
  return static_cast<int>(found - results_.begin());
}

uint32_t Model::intern(int rank) {
  const Local& local = *working_[static_cast<size_t>(rank)];
  std::string key = local.agreements.state();
  key += cat("|", rank, " ", local.calls, " ", local.waits ? 1 : 0, " ", local.result, " ",
             local.changes.agreements(), " ", local.changes.unfinished() ? 1 : 0, " ",
             testing::text_of(local.changes.members()), "|");
  for (const bool changes : local.questions) key += changes ? '1' : '0';
  const auto [found, is_new] =
      local_numbers_.try_emplace(std::move(key), static_cast<uint32_t>(locals_.size()));
  if (is_new) locals_.push_back(local);
  return found->second;
}

World Model::apply(World world, int rank, uint64_t event, const Act& act) {
  const auto at = static_cast<size_t>(rank);
  const uint64_t view = uint64_t{world.gone[at]} << kMostRanks | world.ended[at];
  const uint64_t key = (uint64_t{world.locals[at]} << 2 * kMostRanks | view) << 12 | event;
  static_assert(kMostMessages + kDeliver < size_t{1} << 12);
  auto found = outcomes_.find(key);
  if (found == outcomes_.end()) found = outcomes_.emplace(key, run(world, rank, act)).first;
  world.locals[at] = found->second.local;
  for (const uint16_t message : found->second.sent) {
    if (has(world.alive, messages_[message].first)) world.messages.insert(message);
  }
  return world;
}

Model::Outcome Model::run(const World& world, int rank, const Act& act) {
  const auto at = static_cast<size_t>(rank);
  Local& local = *working_[at];
  local = locals_[world.locals[at]];
  gone_ = world.gone[at];
  ended_ = world.ended[at];
  sent_.clear();
  act(local);
  while (local.answer) call(local, rank);
  if (local.waits) timers_[at]();
  while (local.answer) call(local, rank);
  std::ranges::sort(sent_);
  sent_.erase(std::ranges::unique(sent_).begin(), sent_.end());
  return {intern(rank), sent_};
}

// ---- the checker

bool HashSet::insert(uint64_t value) {
  if (2 * (size_ + 1) > slots_.size()) {
    std::vector<uint64_t> old(2 * slots_.size());
    old.swap(slots_);
    for (const uint64_t kept : old) {
      if (kept != 0) put(kept);
    }
  }
  const bool is_new = put(std::max<uint64_t>(value, 1));
  size_ += is_new ? 1 : 0;
  return is_new;
}

bool HashSet::put(uint64_t value) {
  size_t at = value & (slots_.size() - 1);
  for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at] == value) return false;
  }
  slots_[at] = value;
  return true;
}

void Checker::walk(uint32_t seed) {
  constexpr int kLongest = 300;
  std::mt19937 random(seed);
  path_.clear();
  World world = model_.begin();
  for (int step = 0; step < kLongest; ++step) {
    const std::vector<Event> events = model_.events_of(world);
    if (events.empty()) return;
    path_.push_back(events[random() % events.size()]);
    world = model_.after(world, path_.back());
    if (visited_.insert(world.hash())) look_at(world);
  }
}

void Checker::visit(const World& world) {
  if (!visited_.insert(world.hash())) return;
  look_at(world);
  for (const Event& event : model_.events_of(world)) {
    path_.push_back(event);
    visit(model_.after(world, event));
    path_.pop_back();
  }
}

void Checker::look_at(const World& world) {
  const std::string violation = model_.violation(world);
  if (violation.empty() || violations_++ > 0) return;
  for (const Event& event : path_) story_ += model_.text_of(event) + "\n";
  story_ += violation;
}

}  // namespace tutti::testing
