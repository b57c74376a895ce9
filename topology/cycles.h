// Hamiltonian cycles of a graph that share no edge: rings that together use all links of a mesh or
// torus.
//
//   o===o---o===o      Each cycle uses two edges of every vertex, so a graph of least degree d has
//   ‖   |   |   ‖      at most d/2 of them. A torus has d/2 (for two dimensions: Kotzig, Every
//   o===o---o===o      Cartesian product of two circuits is decomposable into two Hamiltonian
//   ...                circuits, 1973)
//
// The search first divides the edges into 2-factors (Petersen, Die Theorie der regulaeren graphs,
// 1891). In a 2-factor every vertex has two edges, so a 2-factor is a set of cycles. The search
// then joins the cycles of a factor: where two opposite edges of a square belong to this factor and
// the other two to another factor, or to none, the two pairs are exchanged.
#pragma once

#include <vector>

namespace tutti {

// Returns the cycles found, each an order of all vertices; there may be none. `neighbours` lists
// the neighbours of each vertex, each once, and must be symmetric. Cycles are found only in graphs
// that are bipartite, or regular with an even degree, and that have at most 1024 vertices.
// Deterministic.
std::vector<std::vector<int>> hamiltonian_cycles(const std::vector<std::vector<int>>& neighbours);

}  // namespace tutti
