// The files that hold texts.
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

// The files that the paths stand for, in sorted order of the paths. A directory stands for the text
// files directly in it, and those that links in it lead to, sorted. Left out are empty files, those
// with NUL bytes in their first MiB, hidden ones, copies of editors, and what tells of the data
// (README.md, dataset_info.json): `left_out`, if given, gets a line for each directory that has
// such. Throws Error naming the path: missing or unreadable, binary, not a regular
// file, empty, a directory without text.
std::vector<TextFile> find_text_files(std::vector<std::string> paths,
                                      std::vector<std::string>* left_out = nullptr);

// Calls `use` with the texts of the file's documents (documents.h), a piece at a time; a piece is
// valid during the call. Behind each document of JSON lines and of columns comes a newline. Throws
// Error naming the path, and for prompts, which are not to be learnt.
void read_texts(const std::string& path, const std::function<void(std::string_view)>& use);

}  // namespace tutti::training
