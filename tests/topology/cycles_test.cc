// Tests that cycles visit each vertex once, use only edges of the graph, and share no edge.
#include "topology/cycles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using Graph = std::vector<std::vector<int>>;

void connect(Graph& graph, int a, int b) {
  graph[static_cast<size_t>(a)].push_back(b);
  graph[static_cast<size_t>(b)].push_back(a);
}

Graph grid(const std::vector<int>& sides, bool wraps) {
  int size = 1;
  for (const int side : sides) size *= side;
  Graph graph(static_cast<size_t>(size));
  for (int vertex = 0; vertex < size; ++vertex) {
    int stride = 1;
    for (const int side : sides) {
      const int place = vertex / stride % side;
      if (place + 1 < side) connect(graph, vertex, vertex + stride);
      if (wraps && side > 2 && place + 1 == side) {
        connect(graph, vertex, vertex - place * stride);
      }
      stride *= side;
    }
  }
  return graph;
}

size_t checked_cycles(const Graph& graph) {
  const std::vector<std::vector<int>> cycles = hamiltonian_cycles(graph);
  std::set<std::pair<int, int>> used;
  for (const std::vector<int>& cycle : cycles) {
    EXPECT_EQ(cycle.size(), graph.size());
    EXPECT_EQ(std::set<int>(cycle.begin(), cycle.end()).size(), graph.size());
    for (size_t i = 0; i < cycle.size(); ++i) {
      const int a = cycle[i];
      const int b = cycle[(i + 1) % cycle.size()];
      EXPECT_EQ(std::ranges::count(graph[static_cast<size_t>(a)], b), 1) << a << '-' << b;
      EXPECT_TRUE(used.insert({std::min(a, b), std::max(a, b)}).second) << a << '-' << b;
    }
  }
  return cycles.size();
}

TEST(Cycles, CyclesUseAllLinksOfATorus) {
  for (const std::vector<int>& sides :
       std::vector<std::vector<int>>{{3, 3}, {4, 4}, {4, 8}, {5, 7}, {3, 4}, {8, 8}, {16, 16}}) {
    EXPECT_EQ(checked_cycles(grid(sides, true)), 2u) << sides[0] << 'x' << sides[1];
  }
  for (const std::vector<int>& sides :
       std::vector<std::vector<int>>{{3, 3, 3}, {4, 4, 4}, {3, 4, 5}, {8, 4, 4}}) {
    EXPECT_EQ(checked_cycles(grid(sides, true)), 3u)
        << sides[0] << 'x' << sides[1] << 'x' << sides[2];
  }
  EXPECT_EQ(checked_cycles(grid({4, 4, 4, 4}, true)), 4u);
}

TEST(Cycles, AMeshHasACycleIfItHasAnEvenSide) {
  for (const std::vector<int>& sides :
       std::vector<std::vector<int>>{{2, 2}, {2, 3}, {4, 4}, {4, 5}, {8, 8}, {3, 16}, {4, 4, 4}}) {
    EXPECT_EQ(checked_cycles(grid(sides, false)), 1u) << sides[0] << 'x' << sides[1];
  }
  EXPECT_EQ(checked_cycles(grid({3, 3}, false)), 0u) << "an odd number of vertices in two colours";
}

TEST(Cycles, FindsCyclesOfRingsAndCompleteGraphs) {
  EXPECT_EQ(checked_cycles(grid({7}, true)), 1u);
  for (const int vertices : {5, 7, 9}) {
    Graph complete(static_cast<size_t>(vertices));
    for (int a = 0; a < vertices; ++a) {
      for (int b = 0; b < a; ++b) connect(complete, a, b);
    }
    EXPECT_EQ(checked_cycles(complete), static_cast<size_t>(vertices / 2));
  }
}

TEST(Cycles, GraphsWithoutACycleGiveNone) {
  EXPECT_EQ(checked_cycles({}), 0u);
  EXPECT_EQ(checked_cycles({{1}, {0}}), 0u);
  EXPECT_EQ(checked_cycles(grid({5}, false)), 0u);
  Graph apart = grid({3}, true);  // two triangles
  for (const std::vector<int>& neighbours : grid({3}, true)) {
    apart.push_back(neighbours);
    for (int& other : apart.back()) other += 3;
  }
  EXPECT_EQ(checked_cycles(apart), 0u);
}

}  // namespace
}  // namespace tutti
