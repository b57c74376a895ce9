#include "base/file_text.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/text.h"

namespace tutti {

bool is_regular_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::string file_text(const std::string& path, FileKind kind, const ErrorDetail& detail) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw system_error(cat("cannot read ", path), errno, detail);
  const FileLimit& limit = limit_of(kind);
  std::string text;
  std::vector<char> block(1 << 16);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    text.append(block.data(), static_cast<size_t>(file.gcount()));
    if (text.size() <= limit.most) continue;
    ErrorDetail too_large = detail;
    if (too_large.cause.empty())
      too_large.cause = cat("the file is not ", limit.name, ", or is damaged");
    throw Error(ErrorCode::invalid_argument,
                cat(path, " exceeds the limit of ", human_bytes(limit.most), " for ", limit.name,
                    " (`tutti info` lists the limits)"),
                too_large);
  }
  if (file.bad()) throw system_error(cat("cannot read ", path), errno, detail);
  return text;
}

}  // namespace tutti
