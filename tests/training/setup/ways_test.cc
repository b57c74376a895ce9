// Tests that a setting has the same result however it is given: in a configuration file, by --set,
// or as an option. A value that one of them refuses must be refused by all. Values set in C++ are
// checked only against the table of settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/core/schema.h"
#include "training/setup/options.h"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;

// The outcome of giving a setting in one way: its value afterwards, or the error.
struct Outcome {
  std::string way;
  std::optional<std::string> error;
  Json value;
};

template <typename Read>
Outcome outcome_of(const std::string& way, const std::string& key, Read read) {
  try {
    const RunOptions options = read();
    const Json all = written(options);
    const Json* const found = find_member(all, key);
    return {way, std::nullopt, found == nullptr ? Json() : *found};
  } catch (const std::exception& error) {
    return {way, error.what(), {}};
  }
}

// Returns `others` with this setting added.
Json with(const Json& others, const std::string& key, const Json& value) {
  Json all = others;
  set_member(all, key, value);
  return all;
}

std::string words_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& one : value) text += cat(text.empty() ? "" : ",", words_of(one));
  return text;
}

// Returns the command-line words for this value; null if no option can set it.
std::optional<std::vector<std::string>> option_of(const Field& field, const Json& value) {
  const Field::Traits& traits = field.traits();
  if (traits.flags.empty()) return std::nullopt;
  const std::string flag = split(traits.flags, ',')[0];
  if (field.is_list() && !traits.by_commas) {
    std::vector<std::string> words = {flag};
    for (const Json& one : value) words.push_back(words_of(one));
    return words;
  }
  if (field.type() != Field::Type::truth) return std::vector{cat(flag, '=', words_of(value))};
  if (!value.is_boolean() || value.get<bool>() != traits.flag_means) return std::nullopt;
  return std::vector{flag};
}

std::vector<Outcome> in_all_ways(const Field& field, const Json& value, const Json& others) {
  const std::string& key = field.key();
  std::vector<Outcome> outcomes;
  outcomes.push_back(
      outcome_of("file", key, [&] { return parse_run_options({}, with(others, key, value)); }));
  outcomes.push_back(outcome_of("--set", key, [&] {
    return parse_run_options({"--set", cat(key, '=', words_of(value))}, others);
  }));
  if (const auto option = option_of(field, value)) {
    outcomes.push_back(
        outcome_of("option", key, [&] { return parse_run_options(*option, others); }));
  }
  return outcomes;
}

// Returns values of the field's type other than the default, and some that no field of this type
// accepts.
std::vector<Json> samples_of(const Field& field) {
  switch (field.type()) {
    case Field::Type::truth:
      return {true, false};
    case Field::Type::whole:
      return {0, 1, 2, 3, 8, -1};
    case Field::Type::number:
      return {0.0, 0.25, 1.0, 2.0, -1.0};
    case Field::Type::text: {
      std::vector<Json> samples = {"no such choice"};
      for (const std::string& choice : field.choices()) samples.emplace_back(choice);
      return samples;
    }
    case Field::Type::wholes:
      return {Json{1, 2}, Json{-1}};
    case Field::Type::numbers:
      return {Json{0.5, 0.5}, Json{-1.0}};
    case Field::Type::texts:
      return {Json{"a", "b"}};
  }
  return {};
}

void expect_alike(const Field& field, const Json& value, const Json& others) {
  const std::vector<Outcome> outcomes = in_all_ways(field, value, others);
  SCOPED_TRACE(cat(field.key(), " = ", value.dump(), " over ", others.dump()));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error.has_value(), outcomes[0].error.has_value())
        << outcome.way << ": " << outcome.error.value_or("taken") << "\n"
        << outcomes[0].way << ": " << outcomes[0].error.value_or("taken");
    EXPECT_EQ(outcome.value, outcomes[0].value) << outcome.way;
    // The error must contain a name of the setting that users know.
    if (outcome.error) {
      const std::string last = field.key().substr(field.key().rfind('.') + 1);
      EXPECT_THAT(*outcome.error, ::testing::AnyOf(HasSubstr(last), HasSubstr(field.short_name()),
                                                   HasSubstr("--"), HasSubstr(words_of(value))))
          << outcome.way;
    }
  }
}

// Configurations that some settings presuppose: a directory, a schedule, a precision.
const std::vector<Json>& bases() {
  static const std::vector<Json> all = {
      Json{{"data", {{"files", {"t.txt"}}}}},
      Json{{"data", {{"files", {"t.txt"}}}},
           {"checkpoint", {{"directory", "run"}}},
           {"optimizer", {{"lr_schedule", "cosine"}}},
           {"training", {{"compression", "powersgd"}}}},
      Json{{"data", {{"files", {"t.txt"}}}},
           {"parallel", {{"pp", 2}, {"schedule", "pipedream"}}},
           {"training", {{"precision", "f16"}}}},
  };
  return all;
}

TEST(Ways, TheBasesAreAccepted) {
  for (const Json& base : bases()) EXPECT_NO_THROW((void)parse_run_options({}, base));
}

TEST(Ways, EverySettingIsTheSameInAFileInSetAndAsAnOption) {
  RunOptions options;
  Schema schema;
  describe(schema, options);
  ASSERT_GT(schema.fields().size(), 45u);
  for (const Json& base : bases()) {
    for (const Field& field : schema.fields()) {
      // Users do not give the number of samples, but settings that determine it. Only the
      // configuration that a run saves contains it.
      // determine it.
      if (field.key() == "training.samples") continue;
      for (const Json& value : samples_of(field)) {
        if (value == field.get()) continue;  // a file may set a setting to its present value
        expect_alike(field, value, base);
      }
    }
  }
}

// The limits are those in the table, from which callers in C++ read them.
TEST(Ways, TheTableRefusesValuesThatFilesCannotHave) {
  RunOptions options;
  Schema schema;
  describe(schema, options);
  for (const Field& field : schema.fields()) {
    EXPECT_THROW(field.set(Json{{"an", "object"}}), Error) << field.key();
    EXPECT_THROW((void)parse_run_options({}, with(bases()[0], field.key(), Json{{"an", "object"}})),
                 std::exception)
        << field.key();
    const bool is_numeric =
        field.type() == Field::Type::whole || field.type() == Field::Type::number;
    if (!is_numeric) continue;
    EXPECT_THROW(field.set("a word"), Error) << field.key();
    EXPECT_THROW((void)parse_run_options({"--set", cat(field.key(), "=a word")}, bases()[0]),
                 std::exception)
        << field.key();
  }
}

}  // namespace
}  // namespace tutti::training
