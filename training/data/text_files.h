// Text files, read a block at a time: they may be larger than memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training {

struct TextFile {
  std::string path;
  uint64_t bytes = 0;
};

// The files that the paths stand for, in sorted order of the paths, each read through once. A
// directory stands for the text files directly in it, sorted; symbolic links and files with NUL
// bytes in it are passed over. Throws Error naming the path: missing or unreadable, binary, not a
// regular file, empty, a directory without text.
std::vector<TextFile> find_text_files(std::vector<std::string> paths);

// Calls `use` with one block after the other; a block is valid during the call. Of a file whose
// name ends in .jsonl the text is what the lines, objects of JSON, have under "text", each with a
// newline behind it. Throws Error naming the path and the line.
void read_blocks(const std::string& path, const std::function<void(std::string_view)>& use);

}  // namespace tutti::training
