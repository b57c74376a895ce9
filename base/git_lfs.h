// Git LFS pointers: short text files that a clone holds in place of large files.
#pragma once

#include <string_view>

namespace tutti {

// Returns true if the text begins like a Git LFS pointer.
constexpr bool is_git_lfs_pointer(std::string_view text) {
  return text.starts_with("version https://git-lfs.github.com/spec/");
}

inline constexpr const char* kGitLfsCause =
    "the file is a Git LFS pointer: the clone has not fetched its content";
inline constexpr const char* kGitLfsRemedy = "run git lfs pull in the clone";

}  // namespace tutti
