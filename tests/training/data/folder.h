// Fixture for tests that read and write files in their own folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "base/error.h"

namespace tutti::training {

// Returns the text of the Error that `call` throws, or "no error".
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class FolderTest : public ::testing::Test {
 public:
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

 protected:
  FolderTest() {
    std::string pattern = ::testing::TempDir() + "/training_data.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }

  std::string path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Returns the number of files in the folder.
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace tutti::training
