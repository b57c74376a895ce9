// Proves a program by symbolic execution of all p ranks with one message of buffering per
// connection.
//
// verify() runs every program out of place and in place, and rejects programs that
//
//   - make no progress, or have messages without a counterpart;
//   - read unwritten chunks, or use ranges that do not fit;
//   - count contributions twice or not at all, or give other wrong results;
//   - exceed their declared limits.
//
// The error names the rank and the step.
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
  // Largest number of times that a value is rounded between an input and a result, if elements are
  // narrower than their accumulators. The wire format (CallOptions::wire) adds one rounding of the
  // inputs.
  int32_t roundings = 0;
};

struct Proof {
  int32_t root = 0;
  bool direct = false;                       // also prove that no chunk passes through a third rank
  Arithmetic arithmetic = Arithmetic::none;  // arithmetic that the programs should have
};

// Proves the programs of all ranks; programs[r] is the program of rank r.
Verdict verify(Collective collective, std::vector<Program> programs, const Proof& proof = {});
// Proves the programs of all ranks of an algorithm, with `arithmetic`; shape.rank is not used.
Verdict verify(const Algorithm& algorithm, const Shape& shape,
               Arithmetic arithmetic = Arithmetic::none);

}  // namespace tutti
