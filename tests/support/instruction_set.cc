// Skips all tests of a program if TUTTI_CPU selects instructions that this processor lacks.
#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"
#include "base/reduce.h"

namespace tutti::testing {
namespace {

class NeedsInstructionSet : public ::testing::Environment {
 public:
  void SetUp() override {
    try {
      selected_instruction_set();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      GTEST_SKIP() << error.what();
    }
  }
};

// Owned by GoogleTest.
[[maybe_unused]] const auto* const kNeed =
    ::testing::AddGlobalTestEnvironment(std::make_unique<NeedsInstructionSet>().release());

}  // namespace
}  // namespace tutti::testing
