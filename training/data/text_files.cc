#include "training/data/text_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/text.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = size_t{1} << 20;

Error unreadable(const std::string& path, int errno_value) {
  return system_error(cat("cannot read the text ", path), errno_value,
                      {.remedy = "check the path and its permissions"});
}

void read_bytes(const std::string& path, const std::function<void(std::string_view)>& use) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw unreadable(path, errno);
  std::string block(kBlock, '\0');
  while (true) {
    const ssize_t count = ::read(file.get(), block.data(), block.size());
    if (count == 0) return;
    if (count > 0) use(std::string_view(block).substr(0, static_cast<size_t>(count)));
    if (count < 0 && errno != EINTR) throw unreadable(path, errno);
  }
}

std::string text_of_line(const std::string& path, uint64_t number, std::string_view line) {
  try {
    return Json::parse(line).at("text").get<std::string>() + '\n';
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument,
                cat("line ", number, " of ", path, " is no JSON object with a \"text\""),
                {.cause = error.what(),
                 .remedy = "write every line as {\"text\": \"...\"}; or give the file a name "
                           "without .jsonl, to take it as plain text, braces and all"});
  }
}

void read_texts_of_lines(const std::string& path,
                         const std::function<void(std::string_view)>& use) {
  std::string line;
  uint64_t number = 0;
  const auto end_line = [&] {
    ++number;
    if (line.find_first_not_of(" \t\r") != line.npos) use(text_of_line(path, number, line));
    line.clear();
  };
  read_bytes(path, [&](std::string_view block) {
    for (size_t end = block.find('\n'); end != block.npos; end = block.find('\n')) {
      line += block.substr(0, end);
      block.remove_prefix(end + 1);
      end_line();
    }
    line += block;
  });
  if (!line.empty()) end_line();
}

struct Scan {
  uint64_t bytes = 0;
  bool is_binary = false;
};

Scan scan(const std::string& path) {
  Scan found;
  read_blocks(path, [&](std::string_view block) {
    found.bytes += block.size();
    found.is_binary = found.is_binary || block.find('\0') != std::string_view::npos;
  });
  return found;
}

void add_directory(const std::string& directory, std::vector<TextFile>& files) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->symlink_status().type() == fs::file_type::regular) paths.push_back(entry->path());
  }
  if (error) throw unreadable(directory, error.value());
  std::ranges::sort(paths);
  const size_t before = files.size();
  for (const std::string& path : paths) {
    const Scan found = scan(path);
    if (found.bytes > 0 && !found.is_binary) files.push_back({path, found.bytes});
  }
  if (files.size() == before) {
    throw Error(
        ErrorCode::invalid_argument, cat("no text in the directory ", directory),
        {.cause = "it holds no regular file with text in it (subdirectories, symbolic links "
                  "and files with NUL bytes are passed over)",
         .remedy = "name a text file, or a directory of text files"});
  }
}

void add_file(const std::string& path, std::vector<TextFile>& files) {
  const Scan found = scan(path);
  if (found.bytes == 0 || found.is_binary) {
    throw Error(ErrorCode::invalid_argument, cat("the file ", path, " is not text"),
                {.cause = found.is_binary ? "it has NUL bytes" : "it is empty",
                 .remedy = "name a file with text in it"});
  }
  files.push_back({path, found.bytes});
}

}  // namespace

void read_blocks(const std::string& path, const std::function<void(std::string_view)>& use) {
  if (path.ends_with(".jsonl")) return read_texts_of_lines(path, use);
  read_bytes(path, use);
}

std::vector<TextFile> find_text_files(std::vector<std::string> paths) {
  std::ranges::sort(paths);
  std::vector<TextFile> files;
  for (const std::string& path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) throw unreadable(path, errno);
    if (S_ISDIR(status.st_mode)) {
      add_directory(path, files);
    } else if (S_ISREG(status.st_mode)) {
      add_file(path, files);
    } else {
      throw Error(ErrorCode::invalid_argument, cat("cannot read the text ", path),
                  {.cause = "it is neither a file nor a directory",
                   .remedy = "save the text in a file: it is read twice"});
    }
  }
  return files;
}

}  // namespace tutti::training
