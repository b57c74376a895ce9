#include "training/checkpoint/step_directory.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/checkpoint/files.h"
#include "training/checkpoint/manifest.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";
constexpr std::string_view kTemporary = ".tmp-";

}  // namespace

std::string step_name(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

std::optional<int64_t> parse_step_name(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::string_view digits = name.substr(kStep.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step < 0 || name != step_name(step)) return std::nullopt;
  return step;
}

std::string without_slash(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

bool is_step_folder(const std::string& path) {
  std::error_code error;
  return parse_step_name(fs::path(without_slash(path)).filename().string()) ||
         fs::exists(fs::path(path) / kManifestFile, error);
}

std::string temporary_name(int64_t step) {
  char random[16];
  std::snprintf(random, sizeof random, "%08x", static_cast<unsigned>(std::random_device{}()));
  return cat('.', step_name(step), kTemporary, random);
}

bool is_temporary_name(std::string_view name) {
  const size_t end = name.find(kTemporary);
  return end != name.npos && name.starts_with('.') && parse_step_name(name.substr(1, end - 1));
}

std::vector<int64_t> steps_in(const std::string& directory) {
  std::vector<int64_t> steps;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::optional<int64_t> step = parse_step_name(entry->path().filename().string());
    if (step) steps.push_back(*step);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw system_error(cat("cannot list ", directory), error.value());
  }
  std::ranges::sort(steps);
  return steps;
}

std::optional<int64_t> best_step(const std::string& directory) {
  std::error_code error;
  const fs::path target = fs::read_symlink(fs::path(directory) / kBestLink, error);
  return error ? std::nullopt : parse_step_name(target.string());
}

std::optional<int64_t> latest_step(const std::string& directory) {
  const fs::path file = fs::path(directory) / kLatestFile;
  std::error_code error;
  if (!fs::exists(file, error)) {
    const std::vector<int64_t> steps = steps_in(directory);
    return steps.empty() ? std::nullopt : std::optional(steps.back());
  }
  // Some users and tools make `latest` a link to the step's folder.
  std::string text = fs::is_directory(file, error) ? fs::canonical(file, error).filename().string()
                                                   : read_text(file);
  while (text.ends_with('\n')) text.pop_back();
  const std::optional<int64_t> step = parse_step_name(text);
  if (!step) {
    throw Error(ErrorCode::invalid_argument,
                cat(file.string(), " does not name a checkpoint: it contains ", in_quotes(text)));
  }
  return step;
}

}  // namespace tutti::training
