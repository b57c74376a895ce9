#include "collectives/program/algorithm.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <mutex>

#include "base/error.h"
#include "base/hash.h"
#include "base/names.h"
#include "base/text.h"
#include "collectives/algorithms/algorithms.h"

namespace tutti {

namespace {

// Algorithms added at run time. They are in a deque, whose elements never move.
struct Additions {
  std::mutex mutex;
  std::deque<Algorithm> all;
};

Additions& additions() {
  static Additions instance;
  return instance;
}

template <typename Matches>
std::vector<const Algorithm*> select(Matches matches) {
  std::vector<const Algorithm*> selected;
  const auto visit = [&](const Algorithm& algorithm) {
    if (matches(algorithm)) selected.push_back(&algorithm);
  };
  std::ranges::for_each(built_in_algorithms(), visit);
  const std::lock_guard lock(additions().mutex);
  std::ranges::for_each(additions().all, visit);
  return selected;
}

const Algorithm* first(const std::vector<const Algorithm*>& algorithms) {
  return algorithms.empty() ? nullptr : algorithms[0];
}

}  // namespace

std::string_view name(Grade grade) {
  constexpr std::string_view kNames[] = {"wrong", "correct", "same bits", "canonical"};
  return kNames[static_cast<size_t>(grade)];
}

uint64_t id_of(std::string_view identity) { return fnv(identity) >> (64 - kAlgorithmIdBits); }

uint64_t id_of(Collective collective, std::string_view name) {
  return id_of(cat(tutti::name(collective), '/', name));
}

const std::vector<Algorithm>& built_in_algorithms() {
  static const std::vector<Algorithm> all = [] {
    std::vector<Algorithm> made = algorithms::built_in();
    for (Algorithm& algorithm : made) algorithm.id = id_of(algorithm.collective, algorithm.name);
    return made;
  }();
  return all;
}

std::vector<const Algorithm*> all_algorithms() {
  return select([](const Algorithm&) { return true; });
}

std::vector<const Algorithm*> algorithms_for(Collective collective) {
  return select([&](const Algorithm& a) { return a.collective == collective; });
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  return first(
      select([&](const Algorithm& a) { return a.collective == collective && a.name == name; }));
}

const Algorithm* find_algorithm(uint64_t id) {
  return first(select([&](const Algorithm& a) { return a.id == id; }));
}

const Algorithm& require_algorithm(Collective collective, std::string_view name) {
  if (const Algorithm* algorithm = find_algorithm(collective, name)) return *algorithm;
  std::vector<std::string> known = {"auto"};
  for (const Algorithm* algorithm : algorithms_for(collective)) known.push_back(algorithm->name);
  throw Error(ErrorCode::invalid_argument,
              cat("there is no ", tutti::name(collective), " algorithm named \"", name, '"'),
              {.remedy = cat(did_you_mean(name, known), "use one of ", listed(known))});
}

std::vector<Program> emit_all(const Algorithm& algorithm, Shape shape, Arithmetic arithmetic) {
  std::vector<Program> programs;
  programs.reserve(shape.ranks);
  for (shape.rank = 0; shape.rank < shape.ranks; ++shape.rank) {
    programs.push_back(program_of(algorithm, shape, arithmetic));
  }
  return programs;
}

const Algorithm& add_algorithm(Algorithm algorithm) {
  const std::lock_guard lock(additions().mutex);
  const auto same_id = [&](const Algorithm& known) { return known.id == algorithm.id; };
  const Algorithm* known = nullptr;
  for (const Algorithm& built_in : built_in_algorithms()) {
    if (same_id(built_in)) known = &built_in;
  }
  for (const Algorithm& added : additions().all) {
    if (same_id(added)) known = &added;
  }
  if (known == nullptr) return additions().all.emplace_back(std::move(algorithm));
  if (known->collective == algorithm.collective && known->name == algorithm.name) return *known;
  throw Error(ErrorCode::invalid_argument,
              cat(algorithm.name, " (", algorithm.source, ") has the same id as ", known->name,
                  " (", known->source, "), which was registered earlier"),
              {.cause = cat("ranks compare algorithms by a hash of ", kAlgorithmIdBits,
                            " bits, and two of the hashes are equal"),
               .remedy = "change a comment in one of the files, or compose other algorithms"});
}

}  // namespace tutti
