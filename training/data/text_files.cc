#include "training/data/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "training/data/byte_source.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTextBlock = size_t{1} << 20;

Error unreadable_text(const std::string& path, int errno_value) {
  return system_error(cat("cannot read the text ", path), errno_value,
                      {.remedy = "check the path and its permissions"});
}

// Whether there is a NUL byte in what a file begins with; files of columns have them.
bool is_binary(const std::string& path) {
  if (kind_of(path) == DocumentKind::columns) return false;
  std::string block(kTextBlock, '\0');
  block.resize(open_bytes(path)->read(block));
  return block.find('\0') != block.npos;
}

void add_directory(const std::string& directory, std::vector<TextFile>& files) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->symlink_status().type() == fs::file_type::regular) paths.push_back(entry->path());
  }
  if (error) throw unreadable_text(directory, error.value());
  std::ranges::sort(paths);
  const size_t before = files.size();
  for (const std::string& path : paths) {
    const uint64_t bytes = fs::file_size(path, error);
    if (error) throw unreadable_text(path, error.value());
    if (bytes > 0 && !is_binary(path)) files.push_back({path, bytes});
  }
  if (files.size() == before) {
    throw Error(
        ErrorCode::invalid_argument, cat("no text in the directory ", directory),
        {.cause = "it holds no regular file with text in it (subdirectories, symbolic links "
                  "and files with NUL bytes are passed over)",
         .remedy = "name a text file, or a directory of text files"});
  }
}

void add_file(const std::string& path, uint64_t bytes, std::vector<TextFile>& files) {
  const bool binary = is_binary(path);
  if (bytes == 0 || binary) {
    throw Error(ErrorCode::invalid_argument, cat("the file ", path, " is not text"),
                {.cause = binary ? "it has NUL bytes" : "it is empty",
                 .remedy = "name a file with text in it"});
  }
  files.push_back({path, bytes});
}

}  // namespace

void read_texts(const std::string& path, const std::function<void(std::string_view)>& use) {
  const bool lines = kind_of(path) != DocumentKind::text;
  const std::unique_ptr<DocumentReader> reader = open_documents(path, {});
  while (std::optional<Document> document = reader->next()) {
    if (document->prompt) {
      throw Error(ErrorCode::invalid_argument,
                  cat(path, " has prompts and completions, not texts alone"),
                  {.remedy = "make a token file of it, which tells them apart: tutti tokenize"});
    }
    if (lines) document->text += '\n';
    use(document->text);
  }
}

std::vector<TextFile> find_text_files(std::vector<std::string> paths) {
  std::ranges::sort(paths);
  std::vector<TextFile> files;
  for (const std::string& path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) throw unreadable_text(path, errno);
    if (S_ISDIR(status.st_mode)) {
      add_directory(path, files);
    } else if (S_ISREG(status.st_mode)) {
      add_file(path, static_cast<uint64_t>(status.st_size), files);
    } else {
      throw Error(
          ErrorCode::invalid_argument, cat("cannot read the text ", path),
          {.cause = "it is neither a file nor a directory", .remedy = "save the text in a file"});
    }
  }
  return files;
}

}  // namespace tutti::training
