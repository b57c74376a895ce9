// Definition of a fuzz target: a function that passes arbitrary bytes to the library as external
// input. An accepted input must be usable; a refused one must be refused with an Error that names
// the defect and its place. Anything else is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

// Called by libFuzzer and by mutate.h's driver.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tutti::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Calls `use`, which may throw an Error whose text contains `where`. Another exception, or an Error
// without `where`, ends the process.
void take(std::string_view where, const std::function<void()>& use) noexcept;

// Ends the process unless `truth`: checks an invariant of accepted inputs.
void require(bool truth, const char* what);

// Counts of take()'s outcomes.
struct Counts {
  uint64_t taken = 0;
  uint64_t refused = 0;
};
Counts counts();

// A file with the input's content, for readers that take a path. The path is the same for all
// inputs.
class InputFile {
 public:
  // Creates the file. `name`: its name without a folder.
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

// Consumes an input from its front, for targets that need a few choices besides the bytes.
class Choices {
 public:
  explicit Choices(std::string_view input) : left_(input) {}
  // Returns 0 if nothing is left.
  uint8_t byte();
  std::string_view rest() const { return left_; }

 private:
  std::string_view left_;
};

}  // namespace tutti::fuzz
