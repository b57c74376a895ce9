// Takes files into the catalogue: read, made into programs, proved. They are MSCCL's, or hold rings
// that were found on a machine (rings.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/program/algorithm.h"
#include "collectives/program/program.h"

namespace tutti {

struct Imported {
  Collective collective = Collective::all_reduce;
  std::string name;  // the file's base name without its ending
  int32_t ranks = 1;
  int32_t root = 0;
  bool direct = false;
  Means means = Means::shared;
  Grade grade = Grade::wrong;     // never wrong
  std::vector<Program> programs;  // by rank
};

// Throws Error(invalid_argument) that says what is wrong, and where in the file; this includes
// programs whose results are wrong. `file` is a path: for the name, and for messages.
Imported read_msccl(std::string_view xml, const std::string& file);
Imported read_found_rings(std::string_view json, const std::string& file);

// The algorithm in a file, added to the catalogue: it runs on as many ranks as it was written for.
// The same file is read once, and again when its contents have changed. Throws like the readers,
// and Error(system) where the file cannot be read. Any thread.
const Algorithm& import_algorithm(const std::string& path);
// The same of a text that would stand in a file of that name.
const Algorithm& import_text(const std::string& text, const std::string& path);

// What the setting TUTTI_ALGORITHM_FILES names: beside the built-in ones, what `auto` chooses from.
struct AlgorithmFiles {
  std::vector<const Algorithm*> algorithms;
  // "the contents of PATH=#123;" for each: what ranks compare when they meet, as they do settings.
  std::string digests;
};
AlgorithmFiles load_algorithm_files();

}  // namespace tutti
