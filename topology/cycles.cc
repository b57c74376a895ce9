#include "topology/cycles.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <utility>

namespace tutti {

namespace {

using Neighbours = std::vector<std::vector<int>>;
using Edge = std::pair<int, int>;
constexpr size_t kMostVertices = 1024;
constexpr int kFree = 0;  // the colour of an edge outside all factors

int least_degree(const Neighbours& graph) {
  size_t least = graph.size();
  for (const auto& neighbours : graph) least = std::min(least, neighbours.size());
  return static_cast<int>(least);
}

// Returns the side of each vertex, 0 or 1; nullopt if the graph has an odd cycle.
std::optional<std::vector<int>> sides_of(const Neighbours& graph) {
  std::vector<int> side(graph.size(), -1);
  for (size_t start = 0; start < graph.size(); ++start) {
    if (side[start] >= 0) continue;
    side[start] = 0;
    std::queue<int> reached;
    for (reached.push(static_cast<int>(start)); !reached.empty(); reached.pop()) {
      const auto from = static_cast<size_t>(reached.front());
      for (const int to : graph[from]) {
        int& other = side[static_cast<size_t>(to)];
        if (other == side[from]) return std::nullopt;
        if (other >= 0) continue;
        other = 1 - side[from];
        reached.push(to);
      }
    }
  }
  return side;
}

// Matches each vertex on the left with `most` vertices on the right, by augmenting paths.
class Pairing {
 public:
  Pairing(const Neighbours& graph, int most)
      : graph_(graph), most_(static_cast<size_t>(most)), chosen_(graph.size()) {}

  // Returns the partners of each vertex on the right; nullopt if a vertex remains unmatched.
  std::optional<Neighbours> of(const std::vector<int>& left) {
    for (size_t round = 0; round < most_; ++round) {
      for (const int vertex : left) {
        seen_.assign(graph_.size(), false);
        if (!take_one(vertex)) return std::nullopt;
      }
    }
    return chosen_;
  }

 private:
  bool take_one(int vertex) {
    for (const int other : graph_[static_cast<size_t>(vertex)]) {
      const auto right = static_cast<size_t>(other);
      if (seen_[right] || std::ranges::count(chosen_[right], vertex) > 0) continue;
      seen_[right] = true;
      if (chosen_[right].size() < most_) {
        chosen_[right].push_back(vertex);
        return true;
      }
      for (int& partner : chosen_[right]) {
        const int before = partner;
        if (!take_one(before)) continue;
        std::ranges::replace(chosen_[right], before, vertex);
        return true;
      }
    }
    return false;
  }

  const Neighbours& graph_;
  const size_t most_;
  Neighbours chosen_;  // by vertex on the right
  std::vector<bool> seen_;
};

// Returns a spanning subgraph in which each vertex has degree `degree`.
std::optional<Neighbours> regular_part(const Neighbours& graph, int degree) {
  const auto has_degree = [&](const auto& v) { return std::ssize(v) == degree; };
  if (std::ranges::all_of(graph, has_degree)) return graph;
  const auto side = sides_of(graph);
  if (!side) return std::nullopt;
  std::vector<int> left;
  for (size_t vertex = 0; vertex < graph.size(); ++vertex) {
    if ((*side)[vertex] == 0) left.push_back(static_cast<int>(vertex));
  }
  if (2 * left.size() != graph.size()) return std::nullopt;
  std::optional<Neighbours> part = Pairing(graph, degree).of(left);
  if (!part) return std::nullopt;
  for (size_t right = 0; right < graph.size(); ++right) {
    if ((*side)[right] == 0) continue;
    for (const int vertex : (*part)[right]) {
      (*part)[static_cast<size_t>(vertex)].push_back(static_cast<int>(right));
    }
  }
  return part;
}

// Returns the edges oriented so that in- and out-degrees are equal. It walks round trips that use
// all edges once (Hierholzer).
Neighbours oriented(Neighbours graph) {
  Neighbours directed(graph.size());
  for (size_t start = 0; start < graph.size(); ++start) {
    while (!graph[start].empty()) {
      auto at = start;
      do {
        const int next = graph[at].back();
        graph[at].pop_back();
        auto& back = graph[static_cast<size_t>(next)];
        back.erase(std::ranges::find(back, static_cast<int>(at)));
        directed[at].push_back(next);
        at = static_cast<size_t>(next);
      } while (at != start);
    }
  }
  return directed;
}

// Divides edges into `count` 2-factors and returns the edges of each.
std::vector<std::vector<Edge>> two_factors(const Neighbours& graph, int count) {
  const std::optional<Neighbours> part = regular_part(graph, 2 * count);
  if (!part) return {};
  Neighbours directed = oriented(*part);
  std::vector<int> all(graph.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  std::vector<std::vector<Edge>> factors;
  for (int factor = 0; factor < count; ++factor) {
    const std::optional<Neighbours> from = Pairing(directed, 1).of(all);
    if (!from) return {};
    auto& edges = factors.emplace_back();
    for (size_t to = 0; to < from->size(); ++to) {
      const int tail = (*from)[to].front();
      edges.emplace_back(tail, static_cast<int>(to));
      auto& out = directed[static_cast<size_t>(tail)];
      out.erase(std::ranges::find(out, static_cast<int>(to)));
    }
  }
  return factors;
}

// Joins the cycles of each factor by exchanging edges between factors.
class Joining {
 public:
  Joining(const Neighbours& graph, const std::vector<std::vector<Edge>>& factors)
      : graph_(graph), factors_(static_cast<int>(factors.size())) {
    for (size_t vertex = 0; vertex < graph.size(); ++vertex) {
      for (const int other : graph[vertex]) colour_[edge(static_cast<int>(vertex), other)] = kFree;
    }
    for (int factor = 1; factor <= factors_; ++factor) {
      for (const auto& [a, b] : factors[static_cast<size_t>(factor) - 1]) {
        colour_[edge(a, b)] = factor;
      }
      cycles_.push_back(cycles_of(factor));
    }
  }

  void run() {
    constexpr int kTries = 400;  // per vertex; most tries find no square
    for (size_t left = kTries * graph_.size(); left > 0 && !is_done(); --left) try_square();
  }

  bool is_done() const {
    return std::ranges::all_of(cycles_, [](int cycles) { return cycles == 1; });
  }

  std::vector<std::vector<int>> found() const {
    std::vector<std::vector<int>> found;
    for (int factor = 1; factor <= factors_; ++factor) {
      if (cycles_[static_cast<size_t>(factor) - 1] == 1) found.push_back(cycle_from(0, factor));
    }
    return found;
  }

 private:
  static Edge edge(int a, int b) { return {std::min(a, b), std::max(a, b)}; }
  int colour(int a, int b) const {
    const auto found = colour_.find(edge(a, b));
    return found == colour_.end() ? -1 : found->second;
  }
  int any(size_t count) {
    // `%` gives the same result everywhere; distributions of <random> depend on the standard
    // library.
    return static_cast<int>(random_() % count);
  }
  int any_neighbour(int vertex) {
    const auto& neighbours = graph_[static_cast<size_t>(vertex)];
    return neighbours[static_cast<size_t>(any(neighbours.size()))];
  }

  std::vector<int> cycle_from(int start, int factor) const {
    std::vector<int> cycle = {start};
    for (int before = -1, at = start;;) {
      int next = -1;
      for (const int other : graph_[static_cast<size_t>(at)]) {
        if (other != before && colour(at, other) == factor) next = other;
      }
      before = std::exchange(at, next);
      if (at == start) return cycle;
      cycle.push_back(at);
    }
  }

  int cycles_of(int factor) const {
    std::vector<bool> seen(graph_.size());
    int cycles = 0;
    for (size_t start = 0; start < graph_.size(); ++start) {
      if (seen[start]) continue;
      ++cycles;
      for (const int vertex : cycle_from(static_cast<int>(start), factor)) {
        seen[static_cast<size_t>(vertex)] = true;
      }
    }
    return cycles;
  }

  void paint(int a, int b, int c, int d, int ab, int bc) {
    colour_[edge(a, b)] = colour_[edge(c, d)] = ab;
    colour_[edge(b, c)] = colour_[edge(d, a)] = bc;
  }

  // Exchanges the colours of a square if a-b and c-d have one colour, and b-c and d-a another.
  void try_square() {
    const int a = any(graph_.size());
    const int b = any_neighbour(a);
    const int c = any_neighbour(b);
    const int d = any_neighbour(c);
    const int ab = colour(a, b);
    const int bc = colour(b, c);
    if (a == c || b == d || ab == bc || colour(c, d) != ab || colour(d, a) != bc) return;
    paint(a, b, c, d, bc, ab);
    std::vector<int> now = cycles_;
    int more = 0;
    for (const int factor : {ab, bc}) {
      if (factor == kFree) continue;
      int& cycles = now[static_cast<size_t>(factor) - 1];
      cycles = cycles_of(factor);
      more += cycles - cycles_[static_cast<size_t>(factor) - 1];
    }
    // A state with one more cycle is accepted once in this number of tries, to leave local optima.
    constexpr unsigned kSeldom = 50;
    if (more > 1 || (more == 1 && random_() % kSeldom != 0)) {
      paint(a, b, c, d, ab, bc);
    } else {
      cycles_ = now;
    }
  }

  const Neighbours& graph_;
  const int factors_;
  std::map<Edge, int> colour_;  // factor of the edge, from 1
  std::vector<int> cycles_;     // number of cycles per factor, from factor 1
  std::mt19937 random_{1};
};

}  // namespace

std::vector<std::vector<int>> hamiltonian_cycles(const std::vector<std::vector<int>>& neighbours) {
  if (neighbours.size() < 3 || neighbours.size() > kMostVertices) return {};
  std::vector<std::vector<int>> best;
  for (int count = least_degree(neighbours) / 2; count > std::ssize(best); --count) {
    const std::vector<std::vector<Edge>> factors = two_factors(neighbours, count);
    if (factors.empty()) continue;
    Joining joining(neighbours, factors);
    joining.run();
    std::vector<std::vector<int>> found = joining.found();
    if (found.size() > best.size()) best = std::move(found);
  }
  return best;
}

}  // namespace tutti
