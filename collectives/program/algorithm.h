// The catalogue of algorithms by collective and name. The sources are in algorithms/.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/program/arithmetic.h"
#include "collectives/program/program.h"

namespace tutti {

// The properties of a program that verify proves. Each grade includes the ones before it.
enum class Grade : uint8_t {
  wrong,
  correct,    // every input is counted exactly once in every output
  same_bits,  // all ranks compute each result by the same expression tree
  canonical,  // all ranks use the canonical tree, rounded once at its root. It is balanced over
              // ranks in aligned power-of-two groups, lower ranks on the left; for 5 ranks:
              // ((0 1) (2 3)) 4. The tree of scan on rank r is over ranks 0 to r.
};
std::string_view name(Grade grade);

struct Algorithm {
  Collective collective = Collective::barrier;
  std::string name;
  std::string source;          // paper that describes it
  Grade grade = Grade::wrong;  // its grade for every shape that it supports
  // For gather, scatter and all_to_all: true if no chunk passes through a third rank, so that each
  // rank needs the lengths of its own blocks only. verify checks it.
  bool direct = false;
  // If true, the ranks in programs from emit() are positions in a layout. If false, they are ranks
  // of the communicator, as in programs generated for one machine.
  bool over_positions = true;
  // True if data passes through all ranks in sequence: the algorithm takes as many rounds as there
  // are ranks, although each rank's program is short.
  bool is_pipeline = false;
  // Number of layout levels that the algorithm uses.
  int32_t levels = 0;
  // Selects the ranks and the steps that divide results by the number of ranks, for ReduceOp::avg.
  Means means = Means::shared;
  // Generates the program over an ordered layout; program_of() maps it to other layouts.
  std::function<Program(const Shape& shape)> emit;
  // Returns an empty string if the shape is supported, otherwise the reason. Equal on all ranks.
  std::function<std::string(const Shape& shape)> supports = [](const Shape&) {
    return std::string();
  };
  // Id that ranks compare: id_of(collective, name), or for an imported algorithm a hash of the
  // file.
  uint64_t id = 0;
};

// Width of an id in bits, limited by the room in a call's signature. add_algorithm() refuses an id
// that is in use. Algorithms that differ between two processes have equal ids with probability
// 2^-36.
inline constexpr int kAlgorithmIdBits = 36;
uint64_t id_of(std::string_view identity);
uint64_t id_of(Collective collective, std::string_view name);

// Returns the built-in algorithms, which are the same in every process.
const std::vector<Algorithm>& built_in_algorithms();
// Returns the built-in and the added algorithms. The pointers stay valid until the process ends.
std::vector<const Algorithm*> all_algorithms();
std::vector<const Algorithm*> algorithms_for(Collective collective);

// Return the algorithm, or null if there is none with this name or id.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
const Algorithm* find_algorithm(uint64_t id);
// Returns the algorithm with this name. If there is none, throws Error(invalid_argument), which
// lists the known names.
const Algorithm& require_algorithm(Collective collective, std::string_view name);

// Returns the program of shape.rank over shape.layout (ordered or not), including the operator's
// arithmetic.
Program program_of(const Algorithm& algorithm, const Shape& shape,
                   Arithmetic arithmetic = Arithmetic::none);
// Return the results of Algorithm::supports and Algorithm::grade for any layout. Reductions over an
// unordered layout are not canonical.
std::string why_unsupported(const Algorithm& algorithm, const Shape& shape);
Grade grade_of(const Algorithm& algorithm, const Shape& shape);
// Returns the programs of all ranks; shape.rank is not used.
std::vector<Program> emit_all(const Algorithm& algorithm, Shape shape,
                              Arithmetic arithmetic = Arithmetic::none);

// Registers an imported or composed algorithm and returns it. If an algorithm with the same
// collective, name and id is registered already, returns that one. Throws Error(invalid_argument)
// if a different algorithm has this id. Thread-safe.
const Algorithm& add_algorithm(Algorithm algorithm);

}  // namespace tutti
