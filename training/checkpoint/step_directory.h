// Names in a directory of checkpoints:
//
//   step-00000123/                a complete step; unfinished steps never have such a name
//   .step-00000124.tmp-4f1c09ab/  a step being written or removed, or left by a dead run
//   latest                        file with the name of the step that was saved last
//   best                          link to the step with the lowest validation loss
//   lock                          names the job that works here (directory_lock.h)
//   set-aside-1/step-00000200/    steps that a resumed run set aside (run_directory.h)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training {

inline constexpr const char* kLatestFile = "latest";
inline constexpr const char* kBestLink = "best";

std::string step_name(int64_t step);  // Returns "step-00000123" for step 123.
// Returns true if the last component of the path is a step's name, such as step-00000123 (the
// folder need not exist), or if the path is a folder that contains a manifest.
bool is_step_folder(const std::string& path);
// Removes slashes from the path's end, so that the last component of "a/step-00000001/" is
// step-00000001.
std::string without_slash(const std::string& path);
std::optional<int64_t> parse_step_name(std::string_view name);

// Returns a new name for an unfinished folder, a different one at each call.
std::string temporary_name(int64_t step);
bool is_temporary_name(std::string_view name);

// Returns the steps in the directory, ascending; none if the directory does not exist. Throws
// Error(system) if the directory cannot be listed.
std::vector<int64_t> steps_in(const std::string& directory);
// Returns the step that `latest` names or, without that file, the last step; nothing if there are
// no steps. Throws Error(invalid_argument) if the file has other contents.
std::optional<int64_t> latest_step(const std::string& directory);
// Returns the step to which the link `best` points, if there is one.
std::optional<int64_t> best_step(const std::string& directory);

}  // namespace tutti::training
