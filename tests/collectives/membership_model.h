// A model checker for agreements and changes of members. It runs the real Agreements and
// MemberChanges through the interleavings of deliveries, network cuts, deaths, late reports of
// deaths and retries, and looks for living members with different decisions.
//
// Messages form a set that only grows: each may be delivered at any time, repeatedly, or never.
// This covers loss, delay, reordering, duplication and network cuts. A rank's timer fires after
// each of its events, since a message sent earlier may still arrive later.
//
// A rank's next state depends on its state, on the ranks it believes gone or ended, and on the
// event. The real classes therefore run once per such triple, and the global state is a tuple of
// numbers:
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
using Ranks = uint8_t;  // a bit for each

constexpr bool has(Ranks ranks, int rank) { return (ranks >> rank & 1) != 0; }
constexpr Ranks bit(int rank) { return static_cast<Ranks>(1U << rank); }

// Limits of the events.
struct Bounds {
  int ranks = 3;
  bool change = false;    // ranks change members (two agreements); otherwise they agree once
  Ranks side = 0;         // ranks of this side and of the other one may lose sight of each other
  int kills = 0;          // deaths; every rank learns of each death at some time
  bool rumours = false;   // ranks may lose sight of dead ranks before they learn of the death
  int retries = 0;        // how often each rank may give up and call again
  bool restarts = false;  // retries restart the call (a defect that must be found)
  bool at_once = false;   // all call first, and lose sight of a whole side at a time
};

// A rank's part of the surviving members' new communicator.
struct Part {
  std::vector<int> left;
  bool made() const { return true; }
};

// State of a rank between two events.
struct Local {
  bootstrap::Agreements agreements;
  internal::MemberChanges<Part> changes;
  int calls = 0;
  bool waits = false;  // for an agreement
  std::optional<std::pair<uint32_t, Agreed>> answer;
  std::vector<bool> questions;  // by agreement number: true if it changes members
  int result = -1;              // result of the call
};

// A set of message numbers.
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
  int argument = 0;  // deliver: a message; lose_sight: a set of ranks; hear_of_end: a rank
};

// The ranks, driven by events.
class Model {
 public:
  explicit Model(const Bounds& bounds);

  World begin();
  std::vector<Event> events_of(const World& world) const;
  World after(World world, const Event& event);
  // Returns how living members disagree, or an empty string.
  std::string violation(const World& world) const;
  std::string text_of(const Event& event) const;
  // Number of executions of the real classes.
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
  std::vector<std::pair<int, std::string>> messages_;  // destination and frame
  std::map<std::pair<int, std::string>, uint16_t> message_numbers_;
  std::vector<std::string> results_;
  std::unordered_map<uint64_t, Outcome> outcomes_;
  // State of the running rank.
  Ranks gone_ = 0;
  Ranks ended_ = 0;
  bool late_ = false;  // its deadline has passed
  std::vector<uint16_t> sent_;
};

// A set of hashes with open addressing.
class HashSet {
 public:
  // Returns false if the value is present.
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
  // The events that lead to the first violation, one per line, and the violation.
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
