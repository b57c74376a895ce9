#include "collectives/algorithm.h"

#include <cstddef>
#include <deque>
#include <mutex>

#include "base/error.h"
#include "base/text.h"
#include "collectives/algorithms/algorithms.h"

namespace tutti {

namespace {

// FNV-1a of "all_reduce/ring"; that no two are equal is tested.
uint16_t id_of(const Algorithm& algorithm) {
  uint32_t hash = 2166136261;
  for (const char c : cat(name(algorithm.collective), '/', algorithm.name)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  }
  return static_cast<uint16_t>((hash ^ hash >> 15) % kImported);
}

// A deque: what is in it never moves.
struct Catalogue {
  Catalogue() {
    for (Algorithm& algorithm : algorithms::built_in()) {
      algorithm.id = id_of(algorithm);
      all.push_back(std::move(algorithm));
    }
  }
  std::mutex mutex;
  std::deque<Algorithm> all;
};

Catalogue& catalogue() {
  static Catalogue instance;
  return instance;
}

template <typename Matches>
std::vector<const Algorithm*> select(Matches matches) {
  std::lock_guard lock(catalogue().mutex);
  std::vector<const Algorithm*> selected;
  for (const Algorithm& algorithm : catalogue().all) {
    if (matches(algorithm)) selected.push_back(&algorithm);
  }
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

const Algorithm* find_algorithm(uint16_t id) {
  return first(select([&](const Algorithm& a) { return a.id == id; }));
}

const Algorithm& require_algorithm(Collective collective, std::string_view name) {
  if (const Algorithm* algorithm = find_algorithm(collective, name)) return *algorithm;
  std::string known = "auto";
  for (const Algorithm* algorithm : algorithms_for(collective)) {
    known += cat(", ", algorithm->name);
  }
  throw Error(ErrorCode::invalid_argument,
              cat("there is no ", tutti::name(collective), " algorithm named \"", name, '"'),
              {.remedy = cat("take one of ", known)});
}

std::vector<Program> emit_all(const Algorithm& algorithm, Shape shape) {
  std::vector<Program> programs;
  programs.reserve(shape.ranks);
  for (shape.rank = 0; shape.rank < shape.ranks; ++shape.rank) {
    programs.push_back(algorithm.emit(shape));
  }
  return programs;
}

const Algorithm& add_algorithm(Algorithm algorithm) {
  std::lock_guard lock(catalogue().mutex);
  for (const Algorithm& known : catalogue().all) {
    if (known.id == algorithm.id) return known;
  }
  return catalogue().all.emplace_back(std::move(algorithm));
}

}  // namespace tutti
