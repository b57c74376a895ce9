// Files that a clone has in place of large ones: pointers of Git LFS, a few lines of text.
#pragma once

#include <string_view>

namespace tutti {

// What a file begins with.
constexpr bool is_git_lfs_pointer(std::string_view text) {
  return text.starts_with("version https://git-lfs.github.com/spec/");
}

inline constexpr const char* kGitLfsCause =
    "it is a pointer of Git LFS: the clone has not fetched the file itself";
inline constexpr const char* kGitLfsRemedy = "fetch it where it was cloned: git lfs pull";

}  // namespace tutti
