// Names in a directory of checkpoints:
//
//   step-00000123/                complete: unfinished steps never have such a name
//   .step-00000124.tmp-4f1c09ab/  being written or removed, or left by a dead run
//   latest                        text: the name of the step that was saved last
//   best                          link to the step with the lowest validation loss
//   lock                          of the job that works here: directory_lock.h
//   set-aside-1/step-00000200/    steps that a resumed run set aside: run_directory.h
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training {

inline constexpr const char* kLatestFile = "latest";
inline constexpr const char* kBestLink = "best";

std::string step_name(int64_t step);  // "step-00000123"
// True if the path is, or would be, the folder of one step, not a directory of steps.
bool is_step_folder(const std::string& path);
// "a/step-00000001/" is the folder step-00000001 in a.
std::string without_slash(const std::string& path);
std::optional<int64_t> parse_step_name(std::string_view name);

// A new name for an unfinished folder at each call.
std::string temporary_name(int64_t step);
bool is_temporary_name(std::string_view name);

// The steps in the directory, ascending; empty if it does not exist. Throws Error(system).
std::vector<int64_t> steps_in(const std::string& directory);
// The step that `latest` names; without that file the last step; none in a directory without steps.
// Throws Error(invalid_argument) if the file has other contents.
std::optional<int64_t> latest_step(const std::string& directory);
// The step that `best` points to, if any.
std::optional<int64_t> best_step(const std::string& directory);

}  // namespace tutti::training
