// The names in a directory of checkpoints:
//
//   step-00000123/                whole: nothing unfinished has such a name
//   .step-00000124.tmp-4f1c09ab/  being written, or being removed, or left by a run that died
//   latest                        text: the name of the step that was saved last
//   best                          a link to the step with the lowest loss on what is held out
//   lock                          of the job that works here: directory_lock.h
//   set-aside-1/step-00000200/    what a resumed run did not go on from: run_directory.h
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
// Whether it is, or would be, the folder of one step and no directory of steps.
bool is_step_folder(const std::string& path);
// "a/step-00000001/" is the folder step-00000001 in a.
std::string without_slash(const std::string& path);
std::optional<int64_t> parse_step_name(std::string_view name);

// A name for a folder that is not finished; another one each time.
std::string temporary_name(int64_t step);
bool is_temporary_name(std::string_view name);

// Of the steps there, ascending; empty where the directory is not there. Throws Error(system).
std::vector<int64_t> steps_in(const std::string& directory);
// The step that `latest` names; where there is no such file, the last one; none in a directory
// without steps. Throws Error(invalid_argument) where the file says something else.
std::optional<int64_t> latest_step(const std::string& directory);
// The step that `best` leads to, if any.
std::optional<int64_t> best_step(const std::string& directory);

}  // namespace tutti::training
