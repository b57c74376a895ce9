// Optional data of some tests: other projects' files, which are not part of this repository.
#pragma once

#include <filesystem>
#include <string>

namespace tutti::testing {

// Returns the folder of that name in TUTTI_TEST_DATA, or in ../shared/data relative to the
// repository; empty if it does not exist.
std::filesystem::path test_data(const std::string& folder);

// Message for skipped tests.
inline constexpr const char* kNoTestData =
    "no test data: set TUTTI_TEST_DATA to the folder that has it";

}  // namespace tutti::testing
