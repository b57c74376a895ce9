#include "tools/tutti/train/files.h"

#include <string_view>
#include <utility>

#include "base/error.h"
#include "tools/tutti/commands.h"
#include "training/logs/keep_lines.h"
#include "training/setup/report.h"

namespace tutti::tool {
namespace {

constexpr const char* kJsonOption = "--json";

// Returns the step of a line; 0 for lines without a step and malformed lines.
uint64_t step_of(std::string_view line) {
  try {
    return Json::parse(line).value("step", uint64_t{0});
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

TrainFiles::TrainFiles(const Paths& paths, const std::vector<std::string>& columns,
                       std::optional<uint64_t> after)
    : path_(paths.json), after_(after), json_(open_for_appending(path_, kJsonOption)) {
  if (!paths.csv.empty()) csv_.emplace(paths.csv, columns, after);
  if (!paths.tensorboard.empty()) events_.emplace(paths.tensorboard, after.has_value());
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
  if (!after_) {
    json_ = open_for_writing(path_, kJsonOption);
    return;
  }
  training::keep_lines(path_, [&](std::string_view line) { return step_of(line) <= *after_; });
}

}  // namespace tutti::tool
