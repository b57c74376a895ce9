#include "training/hugging_face/import.h"

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/checkpoint/files.h"
#include "training/checkpoint/initial.h"
#include "training/checkpoint/run_directory.h"
#include "training/checkpoint/save.h"
#include "training/checkpoint/step_directory.h"
#include "training/hugging_face/directory.h"

namespace tutti::training::hugging_face {
namespace {

namespace fs = std::filesystem;

// Throws if values are not finite. Called before a checkpoint is created.
void check_finite(const TensorSource& source, const std::string& path) {
  const std::vector<std::string> broken = not_finite(source);
  if (broken.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              cat("NaN or infinity occurs in ", broken.size(), " of the model's tensors, such as ",
                  broken.front()),
              {.where = path, .cause = "the run that wrote it diverged, or the file is damaged"});
}

}  // namespace

void copy_companions(const std::string& from, const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names = companions_in(from);
  names.emplace_back(kConfigFile);
  for (const std::string& name : names) {
    fs::copy_file(fs::path(from) / name, fs::path(folder) / name, error);
    if (error) {
      throw Error(ErrorCode::system, cat("cannot copy ", from, '/', name, " to ", folder),
                  {.cause = error.message()});
    }
  }
}

std::string companions_of_step(const std::string& step) {
  const fs::path folder = fs::path(without_slash(step)).parent_path() / kCompanionFolder;
  std::error_code error;
  return fs::is_directory(folder, error) ? folder.string() : "";
}

void import_model(const std::string& directory, const std::string& run,
                  const ImportOptions& options) {
  const Directory source(directory);
  check_finite(source, directory);
  RunDirectory target(run, {.overwrite = options.overwrite, .resumable = false});
  target.begin();
  copy_companions(directory, target.make_companions());
  std::vector<TensorPiece> pieces;
  for (const std::string& name : source.names()) {
    const TensorInfo& info = *source.find(name);
    pieces.push_back({.name = name,
                      .shape = info.shape,
                      .data = {nullptr, info.dtype, 1, info.count(), info.count()},
                      .source = &source});
  }
  save_checkpoint(
      {.directory = &target,
       .step = 0,
       .model = source.model(),
       .state = {{"step", 0}, {kImportedFrom, fs::path(directory).filename().string()}}},
      pieces, group_of_one());
}

}  // namespace tutti::training::hugging_face
