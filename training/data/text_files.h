// Search for text files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "training/data/documents.h"

namespace tutti::training {

struct TextFile {
  std::string path;
  uint64_t bytes = 0;  // on disk
};

// Returns the files that the paths denote, in sorted order of the paths. A directory denotes the
// text files directly in it, and the targets of its links, sorted. Skipped are empty files, those
// with NUL bytes in their first MiB, hidden files, editors' backups, and descriptions of data sets
// (README.md, dataset_info.json): `left_out`, if given, gets a line for each directory with skipped
// files. Throws Error naming a path that is missing or unreadable, binary, not a regular file,
// empty, or a directory without text.
std::vector<TextFile> find_text_files(std::vector<std::string> paths,
                                      std::vector<std::string>* left_out = nullptr);

// Calls `use` with the texts of the file's documents (documents.h) in pieces; a piece is valid
// during the call. A newline follows each document of JSON lines and of columns. Throws Error
// naming the path, and for prompts, which must not be trained on.
void read_texts(const std::string& path, const std::function<void(std::string_view)>& use);

}  // namespace tutti::training
