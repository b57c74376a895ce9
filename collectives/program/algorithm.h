// The catalogue: every algorithm, by collective and name. One algorithm, one file in algorithms/.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/program/arithmetic.h"
#include "collectives/program/program.h"

namespace tutti {

// What verify can prove of a program. Each grade includes the ones before it.
enum class Grade : uint8_t {
  wrong,
  correct,    // every input is counted exactly once in every output
  same_bits,  // and all ranks build each result by the same expression tree
  canonical,  // and that tree is the canonical one, rounded once at its end: balanced over ranks in
              // aligned power-of-two groups, lower rank on the left (for p = 5: ((0 1) (2 3)) 4;
              // scan on rank r: over ranks 0 to r)
};
std::string_view name(Grade grade);

struct Algorithm {
  Collective collective = Collective::barrier;
  std::string name;
  std::string source;          // the paper it comes from
  Grade grade = Grade::wrong;  // what it has for every shape that it supports
  // gather, scatter, all_to_all: no chunk passes through a third rank, so that each rank needs to
  // know the lengths of its own blocks only. verify checks it.
  bool direct = false;
  // What emit() calls a rank is a position in a layout. Else it is the rank, wherever that is:
  // programs that were made for a machine.
  bool over_positions = true;
  // From rank to rank through all of them: it has as many rounds as there are ranks, of which each
  // rank's steps show its own only.
  bool is_pipeline = false;
  // How many levels of the layout it is made for.
  int32_t levels = 0;
  Means means = Means::shared;  // who divides, for ReduceOp::avg
  // For layouts that are in order: run over others by program_of().
  std::function<Program(const Shape& shape)> emit;
  // Empty when it runs on this many ranks (in such groups), else why not. Alike on every rank.
  std::function<std::string(const Shape& shape)> supports = [](const Shape&) {
    return std::string();
  };
  // What ranks compare: id_of() the collective and the name, or what was imported.
  uint64_t id = 0;
};

// As many bits as a call's signature has room for. That no two algorithms of a process have the
// same id is checked; that those of two ranks have, by chance, happens once in 70 thousand million.
inline constexpr int kAlgorithmIdBits = 36;
uint64_t id_of(std::string_view identity);
uint64_t id_of(Collective collective, std::string_view name);

// The built-in ones: the same in every process, at all times.
const std::vector<Algorithm>& built_in_algorithms();
// These, then those that were added. Pointers stay valid for good.
std::vector<const Algorithm*> all_algorithms();
std::vector<const Algorithm*> algorithms_for(Collective collective);

// Null if there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
const Algorithm* find_algorithm(uint64_t id);
// Throws Error(invalid_argument) that lists the names there are.
const Algorithm& require_algorithm(Collective collective, std::string_view name);

// The program of shape.rank over shape.layout, in order or not, with what the operator adds to it.
Program program_of(const Algorithm& algorithm, const Shape& shape,
                   Arithmetic arithmetic = Arithmetic::none);
// As Algorithm::supports, and its grade: sums over a layout that is out of order are not canonical.
std::string why_unsupported(const Algorithm& algorithm, const Shape& shape);
Grade grade_of(const Algorithm& algorithm, const Shape& shape);
// Of all ranks; shape.rank does not matter.
std::vector<Program> emit_all(const Algorithm& algorithm, Shape shape,
                              Arithmetic arithmetic = Arithmetic::none);

// Adds one at run time (imported, composed), so that it can be named; returns the one that is there
// already under the same collective, name and id. Throws Error(invalid_argument) where another one
// has its id. Any thread.
const Algorithm& add_algorithm(Algorithm algorithm);

}  // namespace tutti
