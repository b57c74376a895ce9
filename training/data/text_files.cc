#include "training/data/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/git_lfs.h"
#include "base/printable.h"
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

// Returns the reason why a file is neither text nor columns, judged by its beginning; "" if it is
// one of them. Binary files have NUL bytes.
std::string_view why_no_text(const std::string& path) {
  std::string block(kTextBlock, '\0');
  block.resize(open_bytes(path)->read(block));
  if (is_git_lfs_pointer(block)) return "the file is a Git LFS pointer that was not fetched";
  if (kind_of(path) == DocumentKind::columns) return "";
  return block.find('\0') != block.npos ? "the file has NUL bytes" : "";
}

// Returns the reason why a file in a directory is not data, judged by its name; otherwise "". Such
// files are backups of editors, and descriptions in data sets and repositories.
std::string_view no_data_by_name(const std::string& file) {
  std::string name = file;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto begins = [&](const char* with) { return name.starts_with(with); };
  const auto ends = [&](const char* with) { return name.ends_with(with); };
  constexpr std::array kMetadata = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                    "state.json", "config.json"};
  if (name.starts_with('.')) return "hidden";
  if (std::ranges::any_of(std::array{"~", ".bak", ".swp", ".tmp", ".partial", ".lock"}, ends)) {
    return "created by a program";
  }
  if (std::ranges::any_of(std::array{"readme", "license", "licence"}, begins) ||
      std::ranges::count(kMetadata, name) > 0) {
    return "a description of the data";
  }
  return "";
}

// The files of a directory: accepted ones, and skipped ones with reasons.
class Directory {
 public:
  explicit Directory(const std::string& path) : path_(path) {
    std::vector<fs::directory_entry> entries;
    std::error_code error;
    for (fs::directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      entries.push_back(*entry);
    }
    if (error) throw unreadable_text(path, error.value());
    std::ranges::sort(entries);
    // Handles links last, because their targets may be in the directory itself.
    for (const bool links : {false, true}) {
      for (const fs::directory_entry& entry : entries) {
        if (entry.is_symlink(error) == links) visit(entry);
      }
    }
    std::ranges::sort(files_, {}, &TextFile::path);
  }

  const std::vector<TextFile>& files() const { return files_; }
  // Returns a description of the skipped files; "" if all files were accepted.
  std::string skipped() const {
    if (skipped_.empty()) return "";
    constexpr size_t kMost = 8;
    std::string text = cat(path_, ": ", files_.size(),
                           files_.size() == 1 ? " file is" : " files are", " read; skipped: ");
    for (size_t i = 0; i < std::min(kMost, skipped_.size()); ++i) {
      text += cat(i == 0 ? "" : ", ", skipped_[i]);
    }
    if (skipped_.size() > kMost) text += cat(" and ", skipped_.size() - kMost, " more");
    return text;
  }

 private:
  void visit(const fs::directory_entry& entry) {
    const std::string name = entry.path().filename();
    const std::string why(why_not(entry, name));
    if (!why.empty()) return skipped_.push_back(cat(printable(name, 100), " (", why, ")"));
    std::error_code error;
    const uint64_t bytes = entry.file_size(error);
    if (error) throw unreadable_text(entry.path(), error.value());
    files_.push_back({entry.path(), bytes});
    targets_.insert(fs::canonical(entry.path()));
  }

  std::string_view why_not(const fs::directory_entry& entry, const std::string& name) const {
    std::error_code error;
    const fs::file_type type = entry.status(error).type();
    if (type == fs::file_type::directory) return "a directory";
    if (type == fs::file_type::not_found) return "a dangling link";
    if (type != fs::file_type::regular) return "not a regular file";
    if (const std::string_view why = no_data_by_name(name); !why.empty()) return why;
    if (entry.file_size(error) == 0) return "empty";
    if (const std::string_view why = why_no_text(entry.path()); !why.empty()) return why;
    if (targets_.contains(fs::canonical(entry.path())))
      return "a link to a file that is read already";
    return "";
  }

  std::string path_;
  std::vector<TextFile> files_;
  std::set<fs::path> targets_;
  std::vector<std::string> skipped_;
};

void add_directory(const std::string& path, std::vector<TextFile>& files,
                   std::vector<std::string>* skipped) {
  const Directory directory(path);
  const std::string others = directory.skipped();
  if (directory.files().empty()) {
    throw Error(ErrorCode::invalid_argument, cat("no text found in the directory ", path),
                {.cause = others.empty() ? "the directory is empty" : others,
                 .remedy = "use a text file or a directory of text files"});
  }
  files.insert(files.end(), directory.files().begin(), directory.files().end());
  if (skipped != nullptr && !others.empty()) skipped->push_back(others);
}

void add_file(const std::string& path, uint64_t bytes, std::vector<TextFile>& files) {
  std::string why(why_no_text(path));
  if (why.empty() && bytes == 0) why = "the file is empty";
  if (!why.empty()) {
    throw Error(ErrorCode::invalid_argument, cat("the file ", path, " is not text"),
                {.cause = why, .remedy = "use a text file"});
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
                  cat(path, " has prompts and completions, not plain texts"),
                  {.remedy = "convert it to a token file, which keeps them apart: tutti tokenize"});
    }
    if (lines) document->text += '\n';
    use(document->text);
  }
}

std::vector<TextFile> find_text_files(std::vector<std::string> paths,
                                      std::vector<std::string>* skipped) {
  std::ranges::sort(paths);
  std::vector<TextFile> files;
  for (const std::string& path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) throw unreadable_text(path, errno);
    if (S_ISDIR(status.st_mode)) {
      add_directory(path, files, skipped);
    } else if (S_ISREG(status.st_mode)) {
      add_file(path, static_cast<uint64_t>(status.st_size), files);
    } else {
      throw Error(ErrorCode::invalid_argument, cat("cannot read the text ", path),
                  {.cause = "the path is neither a file nor a directory",
                   .remedy = "save the text in a regular file"});
    }
  }
  return files;
}

}  // namespace tutti::training
