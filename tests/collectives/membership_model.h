// A model checker for agreements and changes of members. It runs the real Agreements and
// MemberChanges with all interleavings of deliveries, network cuts, deaths, late reports of deaths,
// and retries. It looks for living members that have decided differently.
//
// Messages form a set that only grows. Each may be delivered at any time, repeatedly, or never,
// which covers loss, delay, reordering, duplication and network cuts. A rank's timer fires after
// each of its events, since a message that was sent earlier may still arrive later.
//
// The next state of a rank depends on its state, on the ranks that it considers gone or ended, and
// on the event. The real classes therefore run only once for each such triple, and the state of all
// ranks together (a world) is a tuple of numbers:
//
//   world   | rank 0's state | rank 1's ... | gone and ended ranks, by rank | alive | messages |
//
// Visited worlds are stored as 64-bit hashes.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/runtime/waiting/member_changes.h"
#include "transport/bootstrap/membership/agreement.h"

namespace tutti::testing {

inline constexpr int kMostRanks = 5;
inline constexpr size_t kMostMessages = 1024;
using Ranks = uint8_t;  // a set of ranks, one bit each

constexpr bool has(Ranks ranks, int rank) { return (ranks >> rank & 1) != 0; }
constexpr Ranks bit(int rank) { return static_cast<Ranks>(1U << rank); }

// Limits the events that are explored.
struct Bounds {
  int ranks = 3;
  bool change = false;  // true: ranks change members (two agreements); false: they agree once
  Ranks side = 0;  // ranks on this side, and ranks on the other side, may lose sight of each other
  int kills = 0;   // number of deaths; every rank learns of each death at some time
  bool rumours = false;   // ranks may lose sight of dead ranks before they learn of the death
  int retries = 0;        // how often each rank may give up and call again
  bool restarts = false;  // true: a retry restarts the call, which is a defect that must be found
  // True: all ranks call first; a rank loses sight of the whole other side at once.
  bool at_once = false;
};

// The new communicator of the surviving members, as made by one rank.
struct Part {
  std::vector<int> left;
  bool made() const { return true; }
};

// State of a rank between two events.
struct Local {
  bootstrap::Agreements agreements;
  internal::MemberChanges<Part> changes;
  int calls = 0;
  bool waits = false;  // true while it waits for an agreement
  std::optional<std::pair<uint32_t, Agreed>> answer;
  // Indexed by agreement number: true if the agreement changes members.
  std::vector<bool> questions;
  int result = -1;  // result of the call
};

// A set of indices of messages.
class MessageSet {
 public:
  void insert(size_t message) { words_[message / 64] |= uint64_t{1} << message % 64; }
  void erase(size_t message) { words_[message / 64] &= ~(uint64_t{1} << message % 64); }
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (size_t word = 0; word < words_.size(); ++word) {
      for (uint64_t left = words_[word]; left != 0; left &= left - 1) {
        visit(64 * word + static_cast<size_t>(std::countr_zero(left)));
      }
    }
  }
  uint64_t hash() const;

 private:
  std::array<uint64_t, kMostMessages / 64> words_{};
};

struct World {
  std::array<uint32_t, kMostRanks> locals{};
  std::array<Ranks, kMostRanks> gone{};
  std::array<Ranks, kMostRanks> ended{};
  Ranks alive = 0;
  MessageSet messages;

  uint64_t hash() const;
};

struct Event {
  enum class Kind : uint8_t { call, give_up, deliver, lose_sight, hear_of_end, kill };
  Kind kind;
  int rank;
  int argument = 0;  // a message (deliver), a set of ranks (lose_sight), or a rank (hear_of_end)
};

// The ranks of a world. Events change their states.
class Model {
 public:
  explicit Model(const Bounds& bounds);

  World begin();
  std::vector<Event> events_of(const World& world) const;
  World after(World world, const Event& event);
  // Returns a description of how living members disagree, or "".
  std::string violation(const World& world) const;
  std::string text_of(const Event& event) const;
  // Returns how often the real classes were executed.
  size_t runs() const { return outcomes_.size(); }

 private:
  struct Channel;
  struct Outcome {
    uint32_t local = 0;
    std::vector<uint16_t> sent;
  };
  using Act = std::function<void(Local&)>;

  uint16_t message(int to, const std::string& frame);
  Agreed agree(Local& local, uint32_t number, const Contribution& contribution);
  void call(Local& local, int rank);
  int number_of(const std::string& result);
  uint32_t intern(int rank);
  World apply(World world, int rank, uint64_t event, const Act& act);
  Outcome run(const World& world, int rank, const Act& act);
  const Local& local(const World& world, int rank) const {
    return locals_[world.locals[static_cast<size_t>(rank)]];
  }

  const Bounds bounds_;
  std::vector<std::shared_ptr<Channel>> channels_;
  std::vector<std::unique_ptr<Local>> working_;  // by rank; timers refer to these objects
  std::array<std::function<void()>, kMostRanks> timers_;
  std::vector<uint32_t> first_;  // by rank
  std::vector<Local> locals_;
  std::unordered_map<std::string, uint32_t> local_numbers_;
  std::vector<std::pair<int, std::string>> messages_;  // destination and frame of each message
  std::map<std::pair<int, std::string>, uint16_t> message_numbers_;
  std::vector<std::string> results_;
  std::unordered_map<uint64_t, Outcome> outcomes_;
  // State of the rank that is running.
  Ranks gone_ = 0;
  Ranks ended_ = 0;
  bool late_ = false;  // true if the deadline of its call has passed
  std::vector<uint16_t> sent_;
};

// A set of hashes with open addressing.
class HashSet {
 public:
  // Inserts a value. Returns false if it was present.
  bool insert(uint64_t value);
  size_t size() const { return size_; }

 private:
  bool put(uint64_t value);
  std::vector<uint64_t> slots_ = std::vector<uint64_t>(1 << 10);  // 0: free
  size_t size_ = 0;
};

class Checker {
 public:
  explicit Checker(const Bounds& bounds) : model_(bounds) {}

  // Explores all possible events.
  void explore() { visit(model_.begin()); }
  // Follows one path of random events.
  void walk(uint32_t seed);

  size_t worlds() const { return visited_.size(); }
  size_t runs() const { return model_.runs(); }
  size_t violations() const { return violations_; }
  // Returns the events that led to the first violation, one per line, and the violation.
  const std::string& story() const { return story_; }

 private:
  void visit(const World& world);
  void look_at(const World& world);

  Model model_;
  HashSet visited_;
  std::vector<Event> path_;
  size_t violations_ = 0;
  std::string story_;
};

}  // namespace tutti::testing
