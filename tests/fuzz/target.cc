#include "tests/fuzz/target.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/fd.h"

namespace tutti::fuzz {

namespace {

Counts counted;

}  // namespace

void take(std::string_view where, const std::function<void()>& use) noexcept {
  try {
    use();
    ++counted.taken;
  } catch (const Error& error) {
    ++counted.refused;
    const std::string_view text = error.what();
    if (error.code() != ErrorCode::internal && text.find(where) != text.npos) return;
    std::fprintf(stderr, "a refusal does not name %.*s: %s\n", static_cast<int>(where.size()),
                 where.data(), error.what());
    std::abort();
  }
}

void require(bool truth, const char* what) {
  if (truth) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

Counts counts() { return counted; }

InputFile::InputFile(const std::string& name) {
  std::string folder = std::filesystem::temp_directory_path() / "tutti-fuzz-XXXXXX";
  require(::mkdtemp(folder.data()) != nullptr, "a folder for inputs can be made");
  path_ = folder + "/" + name;
}

InputFile::~InputFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder(), ignored);
}

std::string InputFile::folder() const { return std::filesystem::path(path_).parent_path(); }

void InputFile::write(std::string_view content) const {
  const Fd file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const ssize_t written = ::write(file.get(), content.data(), content.size());
  require(written == static_cast<ssize_t>(content.size()), "the input can be written to its file");
}

uint8_t Choices::byte() {
  if (left_.empty()) return 0;
  const auto first = static_cast<uint8_t>(left_.front());
  left_.remove_prefix(1);
  return first;
}

}  // namespace tutti::fuzz

// hwloc and its plugins leak some memory of files that they refuse.
extern "C" int __lsan_is_turned_off() { return 1; }
