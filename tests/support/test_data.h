// Data that some tests use where it is there: other projects' files, which are not part of this
// repository.
#pragma once

#include <filesystem>
#include <string>

namespace tutti::testing {

// The folder of that name in the one that TUTTI_TEST_DATA names, else in ../shared/data relative to
// the repository; empty where there is none.
std::filesystem::path test_data(const std::string& folder);

// What to say when it is not there.
inline constexpr const char* kNoTestData =
    "no test data: set TUTTI_TEST_DATA to the folder that has it";

}  // namespace tutti::testing
