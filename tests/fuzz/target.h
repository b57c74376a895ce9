// What a fuzz target is: a function that takes any bytes as the library takes what comes from
// outside. An input that is taken must survive being used; one that is refused must be refused by
// an Error that says what is wrong, and where. Whatever else happens is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

// What libFuzzer calls, and mutate.h's driver.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tutti::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Calls `use`, which may throw an Error whose text has `where` in it. Another exception, or an
// Error that does not say so much, ends the process.
void take(std::string_view where, const std::function<void()>& use) noexcept;

// Ends the process unless `truth`: for what must hold of an input that was taken.
void require(bool truth, const char* what);

// How many inputs take() has been through.
struct Counts {
  uint64_t taken = 0;
  uint64_t refused = 0;
};
Counts counts();

// A file whose content is an input, at one path for all of them. For readers that take a path.
class InputFile {
 public:
  // `name` is the file's own.
  explicit InputFile(const std::string& name);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::string folder() const;
  void write(std::string_view content) const;

 private:
  std::string path_;
};

// Eats an input from its front, for targets that need a few choices besides the bytes.
class Choices {
 public:
  explicit Choices(std::string_view input) : left_(input) {}
  // 0 where nothing is left.
  uint8_t byte();
  std::string_view rest() const { return left_; }

 private:
  std::string_view left_;
};

}  // namespace tutti::fuzz
