#include "base/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// An environment variable that is set as long as this object exists.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(SettingsTest, DefaultsAreValidAndSaySo) {
  const Settings settings;
  EXPECT_THAT(settings.warnings(), IsEmpty());
  for (const SettingInfo& info : all_settings()) {
    EXPECT_EQ(settings.value(info.name).origin, "default") << info.name;
    EXPECT_FALSE(info.meaning.empty()) << info.name;
    if (!info.default_value.empty()) {
      Settings copy;
      EXPECT_NO_THROW(copy.set(info.name, info.default_value)) << info.name;
    }
  }
}

TEST(SettingsTest, AnEmptyVariableIsNotSet) {
  const Variable timeout("TUTTI_TIMEOUT", ""), log("TUTTI_LOG", "");
  const Settings settings;
  for (const char* name : {"TUTTI_TIMEOUT", "TUTTI_LOG"}) {
    EXPECT_EQ(settings.value(name).origin, "default") << name;
  }
}

TEST(SettingsTest, WordsMayHaveCapitalLetters) {
  const Variable log("TUTTI_LOG", "INFO"), deterministic("TUTTI_DETERMINISTIC", "True");
  const Settings settings;
  EXPECT_EQ(settings.get_string("TUTTI_LOG"), "info");
  EXPECT_TRUE(settings.get_bool("TUTTI_DETERMINISTIC"));
}

TEST(SettingsTest, OptionsOverrideTheEnvironment) {
  const Variable variable("TUTTI_TIMEOUT", "1.5");
  Settings settings;
  EXPECT_EQ(settings.get_duration("TUTTI_TIMEOUT"), std::chrono::milliseconds(1500));
  EXPECT_EQ(settings.value("TUTTI_TIMEOUT").origin, "environment");
  settings.set("TUTTI_TIMEOUT", "2");
  EXPECT_EQ(settings.get_duration("TUTTI_TIMEOUT"), std::chrono::seconds(2));
  EXPECT_EQ(settings.value("TUTTI_TIMEOUT").origin, "option");
}

TEST(SettingsTest, TimesThatDoNotFitAreTheLongest) {
  Settings settings;
  for (const char* forever : {"inf", "1e10", "1e300", "9300000000"}) {
    settings.set("TUTTI_TIMEOUT", forever);
    EXPECT_EQ(settings.get_duration("TUTTI_TIMEOUT"), std::chrono::nanoseconds::max()) << forever;
    EXPECT_FALSE(Deadline::after(settings.get_duration("TUTTI_TIMEOUT")).passed());
  }
  settings.set("TUTTI_TIMEOUT", "9000000000");
  EXPECT_EQ(settings.get_duration("TUTTI_TIMEOUT"), std::chrono::seconds(9'000'000'000));
  for (const char* wrong : {"nan", "-1", "-inf", "1s", ""}) {
    EXPECT_THAT(error_of([&] { settings.set("TUTTI_TIMEOUT", wrong); }),
                AllOf(HasSubstr("TUTTI_TIMEOUT"), HasSubstr("number of seconds")))
        << wrong;
  }
}

TEST(SettingsTest, MisspeltVariableIsAWarningWithTheNearestName) {
  const Variable variable("TUTTI_TRANSPROT", "tcp");
  const Settings settings;
  EXPECT_THAT(settings.warnings(), ElementsAre(AllOf(HasSubstr("TUTTI_TRANSPROT"),
                                                     HasSubstr("did you mean TUTTI_TRANSPORT?"))));
  EXPECT_EQ(settings.get_string("TUTTI_TRANSPORT"), "auto");
}

TEST(SettingsTest, VariableUnlikeAnyIsAWarningWithoutAGuess) {
  const Variable variable("TUTTI_XYZZY_PLUGH_QUUX", "1");
  EXPECT_THAT(Settings().warnings(),
              ElementsAre(AllOf(HasSubstr("TUTTI_XYZZY_PLUGH_QUUX"), HasSubstr("tutti info"))));
}

// Tools and bindings read these variables themselves, so that the library must not report them.
TEST(SettingsTest, VariablesOfToolsGiveNoWarnings) {
  const Variable cache("TUTTI_TORCH_CACHE", "/tmp");
  const Variable python("TUTTI_PYTHON", "python3");
  EXPECT_THAT(Settings().warnings(), IsEmpty());
}

TEST(SettingsTest, UnknownNameIsAnErrorWithTheNearest) {
  Settings settings;
  EXPECT_THAT(error_of([&] { settings.set("TUTTI_LGO", "info"); }), HasSubstr("TUTTI_LOG"));
  EXPECT_THAT(error_of([&] { settings.get_string("TUTTI_LGO"); }), HasSubstr("TUTTI_LOG"));
}

TEST(SettingsTest, ValuesOfTheWrongTypeAreNamed) {
  Settings settings;
  const auto refusal = [&](const char* name, const char* value) {
    return error_of([&] { settings.set(name, value); });
  };
  EXPECT_THAT(refusal("TUTTI_TCP_STREAMS", "two"),
              AllOf(HasSubstr("TUTTI_TCP_STREAMS='two'"), HasSubstr("whole number")));
  EXPECT_THAT(refusal("TUTTI_TCP_STREAMS", "2x"), HasSubstr("whole number"));
  EXPECT_THAT(refusal("TUTTI_TIMEOUT", "-1"), HasSubstr("seconds"));
  EXPECT_THAT(refusal("TUTTI_TIMEOUT", "soon"), HasSubstr("seconds"));
  EXPECT_THAT(refusal("TUTTI_TRANSPORT", "pigeon"), HasSubstr("auto|shm|tcp"));
  EXPECT_EQ(settings.get_int("TUTTI_TCP_STREAMS"), 0) << "a refused value must leave the old one";
}

TEST(SettingsTest, WrongValueInTheEnvironmentIsAnError) {
  const Variable variable("TUTTI_LOG", "loud");
  EXPECT_THAT(error_of([] { const Settings settings; }),
              AllOf(HasSubstr("TUTTI_LOG='loud'"), HasSubstr("error|warning|info|debug")));
}

TEST(SettingsTest, MistakesMayBeReportedInstead) {
  const Variable level("TUTTI_LOG", "loud");
  const Variable streams("TUTTI_TCP_STREAMS", "-1");
  std::vector<SettingMistake> mistakes;
  const Settings settings(mistakes);
  EXPECT_EQ(settings.get_string("TUTTI_LOG"), "warning");
  ASSERT_EQ(mistakes.size(), 2u);
  std::ranges::sort(mistakes, {}, &SettingMistake::name);
  EXPECT_EQ(mistakes[0].value, "loud");
  EXPECT_THAT(mistakes[0].why, HasSubstr("error|warning|info|debug"));
  EXPECT_THAT(mistakes[1].why, HasSubstr("a whole number from 0 on"));
}

TEST(SettingsTest, NumbersHaveAMinimum) {
  Settings settings;
  for (const char* name : {"TUTTI_CONTROL_FANOUT", "TUTTI_LAUNCH_FANOUT"}) {
    EXPECT_THAT(error_of([&] { settings.set(name, "0"); }), HasSubstr("from 1 on"));
    EXPECT_NO_THROW(settings.set(name, "1"));
  }
}

TEST(SettingsTest, WireSettingsAreThoseThatRanksMustShare) {
  Settings settings;
  const std::string before = settings.wire_settings();
  EXPECT_THAT(before, HasSubstr("TUTTI_TCP_STREAMS=0;"));
  settings.set("TUTTI_LOG", "debug");
  EXPECT_EQ(settings.wire_settings(), before);
  settings.set("TUTTI_TCP_STREAMS", "4");
  EXPECT_NE(settings.wire_settings(), before);
  EXPECT_EQ(before.find("TOKEN"), std::string::npos) << "secrets stay at home";
}

}  // namespace
}  // namespace tutti
