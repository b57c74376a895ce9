// Finds text files.
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
  uint64_t bytes = 0;  // size on disk
};

// Returns the files that the paths denote, in sorted order of the paths. A directory denotes the
// text files directly in it and the targets of its links, sorted. Files in a directory are skipped
// if they are empty, contain NUL bytes in their first MiB (except Parquet and Arrow files), are
// hidden, are editors' backups, or describe a data set (README.md, dataset_info.json). If `skipped`
// is given, a line is appended to it for each directory with skipped files. Throws Error that names
// a path that is missing or unreadable, binary, not a regular file, empty, or a directory without
// text.
std::vector<TextFile> find_text_files(std::vector<std::string> paths,
                                      std::vector<std::string>* skipped = nullptr);

// Calls `use` with the texts of the file's documents (documents.h) in pieces, each of which is
// valid only during the call. A newline follows each document of JSON lines and of columns. Throws
// Error that names the path, also for a file with prompts, because prompts must not be trained on.
void read_texts(const std::string& path, const std::function<void(std::string_view)>& use);

}  // namespace tutti::training
