#include "tools/tutti/train_files.h"

#include <filesystem>
#include <utility>

#include "base/file_text.h"
#include "tools/tutti/commands.h"
#include "training/setup/report.h"

namespace tutti::tool {
namespace {

constexpr const char* kJsonOption = "--json";

}  // namespace

TrainFiles::TrainFiles(const Paths& paths, bool goes_on)
    : path_(paths.json), goes_on_(goes_on), json_(open_for_appending(path_, kJsonOption)) {
  if (!paths.csv.empty()) csv_.emplace(paths.csv, training::scalar_names(), goes_on);
  if (!paths.tensorboard.empty()) events_.emplace(paths.tensorboard, goes_on);
}

void TrainFiles::write(uint64_t step, const Json& line) {
  write_event(line);
  const training::Scalars scalars = training::scalars_of(step, line);
  if (csv_) csv_->write(scalars);
  if (events_) events_->write(scalars);
}

void TrainFiles::write_event(const Json& line) {
  if (json_.is_open()) write_json(line);
}

void TrainFiles::write_json(const Json& line) {
  if (!std::exchange(begun_, true)) begin_json();
  append(json_, path_, line.dump() + '\n', kJsonOption);
}

void TrainFiles::begin_json() {
  if (!goes_on_) {
    json_ = open_for_writing(path_, kJsonOption);
    return;
  }
  // A process that was killed may have left half a line.
  const std::string text = file_text(path_, FileKind::losses);
  const size_t whole = text.rfind('\n') + 1;  // 0 where there is none
  if (whole != text.size()) std::filesystem::resize_file(path_, whole);
}

}  // namespace tutti::tool
