#include "training/setup/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <exception>
#include <iostream>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/core/choices.h"
#include "training/setup/help_format.h"

namespace tutti {

namespace {

constexpr int kWrongUsage = 2;

// Prefix of the name of a check that always passes. CLI11 has no place for the suggested values of
// an option, so they are stored as the name of such a check.
constexpr const char* kSuggested = "words:";

std::vector<std::string> suggested(CLI::Option& option) {
  try {
    const std::string& name = option.get_validator(0)->get_name();
    if (!name.starts_with(kSuggested)) return {};
    std::vector<std::string> words = split(name.substr(std::strlen(kSuggested)), ',');
    std::erase(words, "");
    return words;
  } catch (const CLI::OptionNotFound&) {  // there is no such check
    return {};
  }
}

// Returns the reason why a number is out of range, or "".
std::string out_of_range(const Option::Range& range, const std::string& word) {
  double number = 0;
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (end != word.data() + word.size() || status == std::errc::invalid_argument) {
    return cat("expected a number, not ", in_quotes(word));
  }
  if (status == std::errc() && number >= range.low && number <= range.high) return "";
  const bool bounded = range.high < 1e15;
  return cat("the number must be ", bounded ? "from " : "at least ", range.low,
             bounded ? cat(" to ", static_cast<int64_t>(range.high)) : "", ", not ",
             printable(word, 40));
}

// Parses a number. Returns false for a word that is not a number and for a number out of range;
// CLI11 then throws ConversionError.
template <typename Number>
bool read(const std::string& word, Number& number) {
  const auto read = parse_number<Number>(word);
  number = read.value_or(number);
  return read.has_value();
}
bool read(const std::string& word, std::string& text) {
  text = word;
  return true;
}

std::string shown(double number) { return cat(number); }
std::string shown(int64_t number) { return cat(number); }
std::string shown(const std::string& text) { return text; }

template <typename T>
constexpr const char* kTypeName = std::is_same_v<T, std::string> ? "TEXT"
                                  : std::is_floating_point_v<T>  ? "FLOAT"
                                  : std::is_unsigned_v<T>        ? "UINT"
                                                                 : "INT";

template <typename T>
Option declared(CLI::Option* option) {
  option->type_name(kTypeName<T>);
  auto range =
      std::make_shared<Option::Range>(Option::Range{0, std::numeric_limits<double>::max()});
  if constexpr (!std::is_same_v<T, std::string>) {
    range->high = static_cast<double>(std::numeric_limits<T>::max());
    option->check(CLI::Validator(
        [range](const std::string& word) { return out_of_range(*range, word); }, ""));
  }
  return Option(option, range);
}

template <typename T>
Option add_one(CLI::App& app, const std::string& names, T& value, const std::string& meaning) {
  CLI::Option* const option = app.add_option(
      names, [&value](const CLI::results_t& words) { return read(words.at(0), value); }, meaning,
      false,
      [&value] {
        if constexpr (std::is_integral_v<T>)
          return cat(value);
        else
          return shown(value);
      });
  return declared<T>(option->take_last());
}

template <typename T>
Option add_optional(CLI::App& app, const std::string& names, std::optional<T>& value,
                    const std::string& meaning) {
  CLI::Option* const option = app.add_option(
      names, [&value](const CLI::results_t& words) { return read(words.at(0), value.emplace()); },
      meaning);
  return declared<T>(option->take_last());
}

// Converts an error of `work` into an error of the option.
template <typename Work>
void with_name_in_errors(const std::string& option, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    throw CLI::ValidationError(option, error.what());
  }
}

template <typename T>
Option add_list(CLI::App& app, const std::string& names, std::vector<T>& values,
                const std::string& meaning) {
  CLI::Option* option = app.add_option(
      names,
      [&values](const CLI::results_t& words) {
        values.clear();
        return std::ranges::all_of(
            words, [&](const std::string& word) { return read(word, values.emplace_back()); });
      },
      meaning, false,
      [&values] {
        std::string text;
        for (const T& value : values) text += cat(text.empty() ? "[" : ",", shown(value));
        return text.empty() ? text : text + "]";
      });
  option->expected(CLI::detail::expected_max_vector_size);  // one or more values
  return declared<T>(option);
}

}  // namespace

Option Option::required() const {
  option_->required();
  return *this;
}

Option Option::type_name(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

Option Option::group(const std::string& name) const {
  option_->group(name);
  return *this;
}

Option Option::show_default() const {
  option_->capture_default_str();
  return *this;
}

Option Option::between(double low, double high) const {
  *range_ = {low, high};
  return *this;
}

Option Option::at_least(double low) const { return between(low, range_->high); }

Option Option::one_of(std::vector<std::string> words) const {
  static_cast<void>(suggest(words));
  option_->check(CLI::Validator(
      [choices = std::move(words)](const std::string& word) {
        return choice_problem(word, choices);
      },
      ""));
  return *this;
}

Option Option::suggest(const std::vector<std::string>& words) const {
  std::string name = kSuggested;
  for (const std::string& word : words) name += cat(word, ',');
  option_->check(CLI::Validator([](std::string&) { return std::string(); }, "", name));
  return *this;
}

Option Option::needs(const Option& other) const {
  option_->needs(other.option_);
  return *this;
}

Option Option::separated_by_commas() const {
  option_->delimiter(',')->allow_extra_args(false);
  return *this;
}

Option Option::one_each_time() const {
  option_->take_all()->allow_extra_args(false);
  return *this;
}

Option Option::or_alone(const std::string& value) const {
  option_->expected(0, 1)->default_str(value);
  return *this;
}

Option Command::add_option(const std::string& names, std::string& value,
                           const std::string& meaning) {
  return add_one(*app_, names, value, meaning);
}
Option Command::add_option(const std::string& names, int& value, const std::string& meaning) {
  return add_one(*app_, names, value, meaning);
}
Option Command::add_option(const std::string& names, int64_t& value, const std::string& meaning) {
  return add_one(*app_, names, value, meaning);
}
Option Command::add_option(const std::string& names, uint64_t& value, const std::string& meaning) {
  return add_one(*app_, names, value, meaning);
}
Option Command::add_option(const std::string& names, double& value, const std::string& meaning) {
  return add_one(*app_, names, value, meaning);
}
Option Command::add_option(const std::string& names, std::optional<int>& value,
                           const std::string& meaning) {
  return add_optional(*app_, names, value, meaning);
}
Option Command::add_option(const std::string& names, std::optional<int64_t>& value,
                           const std::string& meaning) {
  return add_optional(*app_, names, value, meaning);
}
Option Command::add_option(const std::string& names, std::optional<double>& value,
                           const std::string& meaning) {
  return add_optional(*app_, names, value, meaning);
}
Option Command::add_option(const std::string& names, std::vector<std::string>& value,
                           const std::string& meaning) {
  return add_list(*app_, names, value, meaning);
}
Option Command::add_option(const std::string& names, std::vector<int64_t>& value,
                           const std::string& meaning) {
  return add_list(*app_, names, value, meaning);
}
Option Command::add_option(const std::string& names, std::vector<double>& value,
                           const std::string& meaning) {
  return add_list(*app_, names, value, meaning);
}

Option Command::add_words(const std::string& names, Take take, const std::string& meaning,
                          bool list) {
  const auto name = std::make_shared<std::string>();
  CLI::Option* const option = app_->add_option(
      names,
      [name, take = std::move(take)](const CLI::results_t& words) {
        with_name_in_errors(*name, [&] { take(words); });
        return true;
      },
      meaning);
  *name = option->get_name();
  option->trigger_on_parse();
  if (list) option->expected(CLI::detail::expected_max_vector_size);  // one or more values
  return Option(option, nullptr);
}

Option Command::add_switch(const std::string& names, std::function<void(bool)> take,
                           const std::string& meaning) {
  const std::string name = split(names, ',').front();
  const auto read = [name, take = std::move(take)](int64_t count) {
    with_name_in_errors(name, [&] { take(count > 0); });
  };
  CLI::Option* const option = app_->add_flag_function(names, read, meaning);
  option->check([](const std::string& word) -> std::string {
    try {
      static_cast<void>(CLI::detail::to_flag_value(word));
      return "";
    } catch (const std::exception&) {  // std::stoll threw: not a number, or beyond 64 bits
      return cat('"', word, "\" is neither true nor false");
    }
  });
  return Option(option->trigger_on_parse(), nullptr);
}

Option Command::add_flag(const std::string& names, bool& value, const std::string& meaning) {
  return Option(app_->add_flag(names, value, meaning), nullptr);
}

void Command::footer(const std::string& text) { app_->footer(text); }
void Command::hide() { app_->group(""); }
void Command::positionals_at_end() { app_->positionals_at_end(); }
void Command::runs(Action action) {
  app_->callback([chosen = chosen_, action = std::move(action)] { *chosen = action; });
}
size_t Command::count(const std::string& name) const { return app_->count(name); }

std::vector<std::string> Command::option_names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) names.push_back(option->get_name());
  return names;
}

CommandLine::CommandLine(const std::string& what, const std::string& version,
                         const std::string& footer)
    : app_(std::make_unique<CLI::App>(what, "tutti")) {
  app_->formatter(help_format());
  app_->set_help_flag("-h,--help", "print this help message and exit");
  app_->set_version_flag("--version", version, "print the version and exit");
  app_->require_subcommand(0, 1);
  app_->footer(footer);
}

CommandLine::~CommandLine() = default;

Command CommandLine::add(const std::string& name, const std::string& what) {
  return {app_->add_subcommand(name, what), &chosen_};
}

std::string CommandLine::suggestion(const std::string& word) const {
  const CLI::App* asked = app_.get();
  for (const CLI::App* sub : app_->get_subcommands()) asked = sub;
  std::vector<std::string> names;
  if (word.starts_with("-")) {
    for (const CLI::Option* option : asked->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  } else if (asked == app_.get()) {
    for (const CLI::App* sub : app_->get_subcommands({})) names.push_back(sub->get_name());
  }
  const std::string found = nearest(word.substr(0, word.find('=')), names);
  return found.empty() ? "" : cat(" (did you mean ", found, "?)");
}

int CommandLine::complain(const std::string& problem) const {
  std::string command;
  for (const CLI::App* sub : app_->get_subcommands()) command = sub->get_name() + " ";
  std::cerr << cat("tutti: ", problem, "; see `tutti ", command, "--help`\n");
  return kWrongUsage;
}

// Describes the fault of the words read last; `error` is CLI11's message.
std::string CommandLine::problem(const std::string& error) const {
  // An unknown word explains the fault better than a missing word.
  std::vector<std::string> unknown = app_->remaining(true);
  std::erase(unknown, "--");
  if (unknown.empty()) {
    const bool lacks_argument = error.ends_with(" is required") && !error.starts_with("-");
    return lacks_argument ? cat("the argument ", error) : error;
  }
  const auto option =
      std::ranges::find_if(unknown, [](const std::string& word) { return word.starts_with("-"); });
  const bool is_option = option != unknown.end();
  const std::string& word = is_option ? *option : unknown.front();
  return cat("unknown ", is_option ? "option " : "command or argument ", printable(word),
             suggestion(word));
}

CLI::App* CommandLine::command_named(const std::string& word) const {
  for (CLI::App* const command : app_->get_subcommands({})) {
    if (command->get_name() == word) return command;
  }
  return nullptr;
}

void CommandLine::add_alias(const std::string& other, std::vector<std::string> own) {
  aliases_.emplace(other, std::move(own));
}

std::vector<std::string> CommandLine::meaning_of(const std::string& word,
                                                 const CLI::App& command) const {
  const std::string name = word.substr(0, word.find('='));
  if (command.get_option_no_throw(name) != nullptr) return {};
  std::vector<std::string> own = {name};
  std::ranges::replace(own.front(), '_', '-');
  if (const auto alias = aliases_.find(own.front()); alias != aliases_.end()) own = alias->second;
  if (own.front() == name || command.get_option_no_throw(own.front()) == nullptr) return {};
  own.front() += word.substr(name.size());
  return own;
}

std::vector<std::string> CommandLine::without_aliases(const std::vector<std::string>& words) const {
  const CLI::App* const command = words.empty() ? nullptr : command_named(words[0]);
  if (command == nullptr) return words;
  std::vector<std::string> read = {words[0]};
  std::vector<std::string> after_value;  // remaining words of an alias, which follow its value
  bool value_follows = false;
  size_t at = 1;
  for (; at < words.size() && words[at] != "--"; ++at) {
    const std::string& word = words[at];
    if (!word.starts_with("-")) {
      // The words after this one are options of the program that the command starts.
      if (command->get_positionals_at_end() && !value_follows) break;
      read.push_back(word);
      read.insert(read.end(), after_value.begin(), after_value.end());
      after_value.clear();
      value_follows = false;
      continue;
    }
    std::vector<std::string> own = meaning_of(word, *command);
    if (own.empty()) own = {word};
    read.push_back(own.front());
    const CLI::Option* const option =
        command->get_option_no_throw(own.front().substr(0, own.front().find('=')));
    const bool has_value = own.front().find('=') != std::string::npos;
    value_follows = option != nullptr && !has_value && option->get_items_expected_max() > 0;
    after_value.assign(own.begin() + 1, own.end());
    if (value_follows) continue;
    read.insert(read.end(), after_value.begin(), after_value.end());
    after_value.clear();
  }
  read.insert(read.end(), words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  return read;
}

// Returns the known values of the option that is the last of `words` or, if that is not an option
// with a value, the known values of the command's first positional argument.
std::vector<std::string> CommandLine::values_after(const std::vector<std::string>& words) const {
  CLI::App* const command = command_named(words.front());
  const std::string option = words.back();
  const bool named = option.starts_with("-") && words.size() > 1;
  if (CLI::Option* const found = named ? command->get_option_no_throw(option) : nullptr) {
    if (found->get_items_expected_max() > 0) return suggested(*found);
  }
  for (CLI::Option* const argument : command->get_options()) {
    if (argument->get_positional()) return suggested(*argument);
  }
  return {};
}

std::vector<std::string> CommandLine::completions(const std::vector<std::string>& words) const {
  std::vector<std::string> before = words;
  std::erase(before, "=");  // bash's words: --op, =, su
  const std::string typed = words.empty() || words.back() == "=" ? "" : words.back();
  if (!words.empty() && words.back() != "=") before.pop_back();
  std::vector<std::string> all;
  const auto shown = [](const auto* it) { return !it->get_group().empty(); };
  if (before.empty()) {
    for (const CLI::App* command : app_->get_subcommands(shown)) all.push_back(command->get_name());
  } else if (std::ranges::find(before, "--") != before.end()) {
    return {};
  } else if (const CLI::App* const command = command_named(before[0]); command != nullptr) {
    // zsh passes --op=su as one word
    if (const size_t end = typed.find('='); end != std::string::npos) {
      before.push_back(typed.substr(0, end));
      for (const std::string& value : values_after(before)) {
        all.push_back(typed.substr(0, end + 1) + value);
      }
    } else if (!typed.starts_with("-")) {
      all = values_after(before);
    } else {
      for (const CLI::Option* option : command->get_options(shown)) {
        for (const std::string& name : option->get_lnames()) all.push_back("--" + name);
      }
    }
  }
  std::erase_if(all, [&](const std::string& word) { return !word.starts_with(typed); });
  std::ranges::sort(all);
  return all;
}

void CommandLine::read(const std::vector<std::string>& words) {
  std::vector<std::string> own = without_aliases(words);
  std::ranges::reverse(own);  // CLI11 expects reversed words
  app_->parse(std::move(own));
}

void CommandLine::parse(const std::vector<std::string>& words) {
  try {
    read(words);
  } catch (const CLI::ParseError& error) {
    const bool asks = error.get_exit_code() == 0;  // true for --help and --version
    throw UsageError(asks ? "--help and --version are only valid on the command line"
                          : problem(error.what()));
  }
  if (chosen_) chosen_();
}

int CommandLine::run(int argc, const char* const* argv, const Check& check) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  try {
    if (check) check(words);
    read(words);
  } catch (const UsageError& error) {
    return complain(error.what());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);  // true for --help and --version
    return complain(problem(error.what()));
  }
  if (!chosen_) {
    std::cout << app_->help();
    return 0;
  }
  try {
    return chosen_();
  } catch (const UsageError& error) {
    return complain(error.what());
  }
}

}  // namespace tutti
