// Parses the command line: subcommands, their options and their help. If an option with one value
// is given twice, the last one counts. command_line.cc is the only user of CLI11, whose header
// takes ten seconds to compile.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tutti {

// Error for invalid words, or options that cannot be combined.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Handle on a declared option; its functions set further properties.
class Option {
 public:
  struct Range {
    double low;
    double high;
  };
  Option(CLI::Option* option, std::shared_ptr<Range> range)
      : option_(option), range_(std::move(range)) {}

  Option required() const;
  // Sets the placeholder of the value in the help.
  Option type_name(const std::string& name) const;
  // Sets the heading in the help; empty: the option is hidden.
  Option group(const std::string& name) const;
  Option show_default() const;
  // Sets the limits of a number, or of each number in a list. The default lower limit is 0.
  Option between(double low, double high) const;
  Option at_least(double low) const;
  Option one_of(std::vector<std::string> words) const;
  // Sets values that a shell completes; the option accepts others too.
  Option suggest(const std::vector<std::string>& words) const;
  Option needs(const Option& other) const;
  // For lists: accepts "A,B" in one argument, instead of one value per occurrence of the option.
  Option separated_by_commas() const;
  // For lists: takes one argument at each occurrence of the option, and keeps those of all
  // occurrences.
  Option one_each_time() const;
  // Allows the option without a value; it then has the value `value`.
  Option or_alone(const std::string& value) const;

 private:
  CLI::Option* option_;
  std::shared_ptr<Range> range_;
};

// A subcommand.
class Command {
 public:
  // Function that runs the command. Returns the exit code, or throws.
  using Action = std::function<int()>;

  Command(CLI::App* app, Action* chosen) : app_(app), chosen_(chosen) {}

  // Adds an option or a positional argument. `names`: "--ranks,-n", or "file" for a positional
  // argument. `value` has the default, and must outlive the command.
  Option add_option(const std::string& names, std::string& value, const std::string& meaning = {});
  Option add_option(const std::string& names, int& value, const std::string& meaning);
  Option add_option(const std::string& names, int64_t& value, const std::string& meaning);
  Option add_option(const std::string& names, uint64_t& value, const std::string& meaning);
  Option add_option(const std::string& names, double& value, const std::string& meaning);
  Option add_option(const std::string& names, std::optional<int>& value,
                    const std::string& meaning);
  Option add_option(const std::string& names, std::optional<int64_t>& value,
                    const std::string& meaning);
  Option add_option(const std::string& names, std::optional<double>& value,
                    const std::string& meaning);
  Option add_option(const std::string& names, std::vector<std::string>& value,
                    const std::string& meaning);
  Option add_option(const std::string& names, std::vector<int64_t>& value,
                    const std::string& meaning);
  Option add_option(const std::string& names, std::vector<double>& value,
                    const std::string& meaning);
  // Function that gets the words of an option at each occurrence, in the order of the command line:
  // one word, or several for a list. An Error that it throws is reported with the option's name.
  using Take = std::function<void(const std::vector<std::string>& words)>;
  Option add_words(const std::string& names, Take take, const std::string& meaning, bool list);
  // Adds an option without a value: `take` gets true for "--name" and false for "--name=false".
  Option add_switch(const std::string& names, std::function<void(bool)> take,
                    const std::string& meaning);
  // Adds an option without a value that sets `value` to true; "!--name" sets it to false.
  Option add_flag(const std::string& names, bool& value, const std::string& meaning = {});

  void footer(const std::string& text);
  void hide();
  // Makes all words after the first positional one belong to the positional arguments: `tutti run
  // program --flag`.
  void positionals_at_end();
  // Sets the action of the command.
  void runs(Action action);

  // Returns the number of occurrences of an option.
  size_t count(const std::string& name) const;
  std::vector<std::string> option_names() const;

 private:
  CLI::App* app_;
  Action* chosen_;
};

class CommandLine {
 public:
  CommandLine(const std::string& what, const std::string& version, const std::string& footer);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Command add(const std::string& name, const std::string& what);
  // Makes `other` an alias of the words `own`, in each command that has the option own[0] and no
  // option named `other`. The alias's value comes after own[0]: {"--load", {"--checkpoint",
  // "--resume"}} reads "--load DIR" as "--checkpoint DIR --resume". Underscores in options need no
  // alias: --micro_batch is read as --micro-batch.
  void add_alias(const std::string& other, std::vector<std::string> own);
  // Parses the words, runs the command, and returns its exit code. Reports a UsageError with a
  // reference to the help, and returns 2. `check` gets the words before they are parsed, and may
  // throw UsageError.
  using Check = std::function<void(const std::vector<std::string>& words)>;
  int run(int argc, const char* const* argv, const Check& check = {});
  // Parses and runs these words, which follow a program's name. Throws UsageError.
  void parse(const std::vector<std::string>& words);
  // Returns the commands, options or values that begin with the last of these words. The last word
  // may be empty. Returns nothing if any word is allowed, such as a file name.
  std::vector<std::string> completions(const std::vector<std::string>& words) const;

 private:
  std::string problem(const std::string& error) const;
  CLI::App* command_named(const std::string& word) const;  // returns null if unknown
  std::vector<std::string> values_after(const std::vector<std::string>& words) const;
  int complain(const std::string& problem) const;
  // Returns " (did you mean --data?)" if an option or a command has a similar name, otherwise "".
  std::string suggestion(const std::string& word) const;
  // Returns the words with aliases replaced, except the words of a program that a command starts.
  std::vector<std::string> without_aliases(const std::vector<std::string>& words) const;
  // Returns the words that replace the alias `word`; nothing if `command` has no such alias.
  std::vector<std::string> meaning_of(const std::string& word, const CLI::App& command) const;
  void read(const std::vector<std::string>& words);

  std::unique_ptr<CLI::App> app_;
  std::map<std::string, std::vector<std::string>> aliases_;
  Command::Action chosen_;
};

}  // namespace tutti
