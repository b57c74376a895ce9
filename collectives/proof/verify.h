// Proves a program: all p ranks are run symbolically, with one message of buffering per connection.
//
// Refused, with the place: no progress, an unmatched message, a read of a chunk that nothing wrote,
// a contribution counted twice or missing, a wrong result, ranges that do not fit, limits that are
// not what the program declares. Every program is run out of place and in place.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collectives/program/algorithm.h"
#include "collectives/program/arithmetic.h"
#include "collectives/program/program.h"

namespace tutti {

struct Verdict {
  Grade grade = Grade::wrong;
  std::string problem;  // empty unless wrong: "rank 2, step 5 (recv from 1): ..."
  // How often a sum is rounded on the longest way from an input to a result, where elements are
  // narrower than what they are summed in. Inputs that are rounded to such elements themselves
  // (CallOptions::wire) are so once more.
  int32_t roundings = 0;
};

struct Proof {
  int32_t root = 0;
  bool direct = false;  // proves that no chunk passes through a third rank, too
  Arithmetic arithmetic = Arithmetic::none;  // that the programs are to do
};

// `programs[r]` is rank r's.
Verdict verify(Collective collective, std::vector<Program> programs, const Proof& proof = {});
// shape.rank does not matter: all ranks' programs are proved.
// With what `arithmetic` adds to them.
Verdict verify(const Algorithm& algorithm, const Shape& shape,
               Arithmetic arithmetic = Arithmetic::none);

}  // namespace tutti
