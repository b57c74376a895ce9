#include "tests/support/test_data.h"

#include <cstdlib>

namespace tutti::testing {

namespace {

// Under Bazel, the repository's files are links to their real location.
std::filesystem::path repository() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::canonical("tests/support/test_data.h", error);
  return error ? std::filesystem::path() : own.parent_path().parent_path().parent_path();
}

}  // namespace

std::filesystem::path test_data(const std::string& folder) {
  const char* named = std::getenv("TUTTI_TEST_DATA");
  const std::filesystem::path root =
      named != nullptr ? std::filesystem::path(named) : repository() / "../shared/data";
  std::error_code error;
  const std::filesystem::path found = root / folder;
  return std::filesystem::is_directory(found, error) ? found : std::filesystem::path();
}

}  // namespace tutti::testing
