// Imports files into the catalogue: reads them, converts them to programs and proves the programs.
// Supports MSCCL's files, and files with rings found on a machine (rings.h).
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
  std::string name;  // base name of the file without its extension
  int32_t ranks = 1;
  int32_t root = 0;
  bool direct = false;
  Means means = Means::shared;
  Grade grade = Grade::wrong;     // at least Grade::correct after import
  std::vector<Program> programs;  // by rank
};

// Read a file's text. Throw Error(invalid_argument) that names the defect and its location in the
// file, also if a program's results are wrong. `file` is a path, used for the name and in messages.
Imported read_msccl(std::string_view xml, const std::string& file);
Imported read_found_rings(std::string_view json, const std::string& file);

// Imports the algorithm in a file and adds it to the catalogue. The algorithm supports only the
// number of ranks that the file states. Later calls import the file again only if its contents have
// changed. Throws what read_msccl() and read_found_rings() throw, and Error(system) if the file
// cannot be read. Thread-safe.
const Algorithm& import_algorithm(const std::string& path);
// Does the same as import_algorithm(path) for a file whose contents are `text`.
const Algorithm& import_text(const std::string& text, const std::string& path);

// The algorithms named by TUTTI_ALGORITHM_FILES, which `auto` may choose besides the built-in ones.
struct AlgorithmFiles {
  std::vector<const Algorithm*> algorithms;
  // Text with "the contents of PATH=#123;" for each file. Ranks compare it during bootstrap, as
  // they compare settings.
  std::string digests;
};
AlgorithmFiles load_algorithm_files();

}  // namespace tutti
