#include "collectives/interchange/msccl_import.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/file_text.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/interchange/linearize.h"
#include "collectives/interchange/msccl.h"
#include "collectives/interchange/rings.h"
#include "collectives/proof/verify.h"

namespace tutti {

namespace {

// Lists the elements for a message: "<copy> (line 6), <note> (line 9)".
std::string foreign_elements(const MscclAlgorithm& algorithm) {
  std::string text;
  for (const auto& [element, line] : algorithm.foreign) {
    text += cat(text.empty() ? "" : ", ", element, " (line ", line, ')');
  }
  return text;
}

// Returns the origin in the file of the step that a proof's problem ("rank R, step S ...") names.
MscclPlace origin_of(const std::string& problem, const Linearized& linearized) {
  int rank = -1;
  int step = -1;
  if (std::sscanf(problem.c_str(), "rank %d, step %d", &rank, &step) < 1 || rank < 0 ||
      rank >= static_cast<int>(linearized.origins.size())) {
    return {};
  }
  const std::vector<MscclPlace>& origins = linearized.origins[rank];
  if (step < 0 || step >= static_cast<int>(origins.size())) return {.gpu = rank};
  return origins[step];
}

bool is_direct(const Imported& imported) {
  if (imported.collective != Collective::all_to_all) return false;
  return verify(imported.collective, imported.programs, {.root = imported.root, .direct = true})
             .grade != Grade::wrong;
}

// Returns Means::shared if the programs pass the proof with Means::shared, otherwise Means::own.
// They fail, for example, if a rank completes a result in its scratch buffer and sends it from
// there (the result is then not divided).
Means means_of(const Imported& imported) {
  std::vector<Program> programs = imported.programs;
  Shape shape{.ranks = imported.ranks, .root = imported.root};
  for (Program& program : programs) {
    program = with_arithmetic(Arithmetic::means, Means::shared, imported.collective, shape,
                              std::move(program));
    ++shape.rank;
  }
  const Proof proof{.root = imported.root, .arithmetic = Arithmetic::means};
  const bool right = verify(imported.collective, std::move(programs), proof).grade != Grade::wrong;
  return right ? Means::shared : Means::own;
}

Algorithm algorithm_of(Imported imported, const std::string& path, uint64_t id) {
  const auto shared = std::make_shared<const Imported>(std::move(imported));
  return {.collective = shared->collective,
          .name = shared->name,
          .source = cat("imported from ", path),
          .grade = shared->grade,
          .direct = shared->direct,
          .over_positions = false,
          .means = shared->means,
          .emit = [shared](const Shape& shape) { return shared->programs[shape.rank]; },
          .supports =
              [shared](const Shape& shape) {
                if (shape.ranks != shared->ranks) return cat("it is for ", shared->ranks, " ranks");
                if (has_root(shared->collective) && shape.root != shared->root) {
                  return cat("it is for root ", shared->root);
                }
                return std::string();
              },
          .id = id};
}

struct Cache {
  std::mutex mutex;
  // Imported algorithms by path and hash of the contents.
  std::map<std::pair<std::string, uint64_t>, const Algorithm*> files;
  std::map<uint64_t, const Algorithm*> contents;
};

Cache& cache() {
  static Cache instance;
  return instance;
}

}  // namespace

Imported read_msccl(std::string_view xml, const std::string& file) {
  const MscclAlgorithm algorithm = parse_msccl(xml, file);
  Linearized linearized = linearize(algorithm);
  Imported imported{.collective = algorithm.collective,
                    .name = std::filesystem::path(file).stem(),
                    .ranks = static_cast<int32_t>(algorithm.gpus.size()),
                    .root = algorithm.root,
                    .programs = std::move(linearized.programs)};
  const Verdict verdict = verify(imported.collective, imported.programs, {.root = imported.root});
  const std::string skipped = foreign_elements(algorithm);
  if (verdict.grade == Grade::wrong) {
    refuse_msccl(file, origin_of(verdict.problem, linearized),
                 cat("this is not a correct ", name(imported.collective), ": ", verdict.problem),
                 skipped.empty() ? ""
                                 : cat("express these elements as steps: ", skipped,
                                       "; they are not part of the MSCCL format and were skipped"));
  }
  if (!skipped.empty()) {
    log(LogLevel::warning, cat(file, ": skipped elements that are not part of the MSCCL format: ",
                               skipped, "; the algorithm is correct without them"));
  }
  imported.grade = verdict.grade;
  imported.direct = is_direct(imported);
  if (imported.collective == Collective::all_reduce) imported.means = means_of(imported);
  return imported;
}

Imported read_found_rings(std::string_view json, const std::string& file) {
  Imported imported{.name = std::filesystem::path(file).stem(), .programs = read_rings(json, file)};
  imported.ranks = static_cast<int32_t>(imported.programs.size());
  imported.grade = verify(imported.collective, imported.programs, {}).grade;
  return imported;
}

const Algorithm& import_algorithm(const std::string& path) {
  return import_text(
      file_text(path, FileKind::program,
                {.remedy = "use an MSCCL XML file, or a JSON file written by `tutti topo --json`"}),
      path);
}

const Algorithm& import_text(const std::string& text, const std::string& path) {
  const uint64_t hash = fnv(text);
  std::lock_guard lock(cache().mutex);
  const Algorithm*& known = cache().files[{path, hash}];
  if (known != nullptr) return *known;
  if (const auto same = cache().contents.find(hash); same != cache().contents.end()) {
    return *(known = same->second);
  }
  const size_t start = text.find_first_not_of(" \t\r\n");
  const bool is_json = start != std::string::npos && text[start] == '{';
  known = &add_algorithm(algorithm_of(
      is_json ? read_found_rings(text, path) : read_msccl(text, path), path, id_of(text)));
  cache().contents[hash] = known;
  return *known;
}

AlgorithmFiles load_algorithm_files() {
  AlgorithmFiles files;
  for (const std::string& path : split(settings().get_string("TUTTI_ALGORITHM_FILES"), ':')) {
    const Algorithm& algorithm = import_algorithm(path);
    files.algorithms.push_back(&algorithm);
    files.digests += cat("the contents of ", path, "=#", algorithm.id, ';');
  }
  return files;
}

}  // namespace tutti
