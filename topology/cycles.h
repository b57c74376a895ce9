// Hamiltonian cycles of a graph that share no edge: rings that use meshes and tori to the full.
//
//   o===o---o===o      each vertex has two edges of a cycle, so one of least degree d has d/2 at
//   ‖   |   |   ‖      most; a torus of any sides has as many (of two dimensions: Kotzig, Every
//   o===o---o===o      Cartesian product of two circuits is decomposable into two Hamiltonian
//   ...                circuits, 1973)
//
// Found by taking 2-factors (each vertex has two edges of each; Petersen, Die Theorie der
// regulaeren graphs, 1891), which are cycles, but several, and joining these: where two edges of a
// square are of one factor and the other two of another one, or of none, they may change places.
#pragma once

#include <vector>

namespace tutti {

// `neighbours`: by vertex, each once; symmetric. Each result is an order of all vertices, a cycle.
// As many as are found, which may be none: graphs have to be regular, or bipartite. Deterministic.
std::vector<std::vector<int>> hamiltonian_cycles(const std::vector<std::vector<int>>& neighbours);

}  // namespace tutti
