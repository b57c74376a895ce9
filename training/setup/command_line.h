// The command line: subcommands, their options and their help. Of an option with one value that is
// given twice the last one counts. The only user of CLI11, whose header
// takes ten seconds to compile, is command_line.cc.
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

// Words that make no sense, or options that do not fit together.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An option that was declared; all of these say more about it.
class Option {
 public:
  struct Range {
    double low;
    double high;
  };
  Option(CLI::Option* option, std::shared_ptr<Range> range)
      : option_(option), range_(std::move(range)) {}

  Option required() const;
  Option type_name(const std::string& name) const;  // of the value, for the help
  Option group(const std::string& name) const;      // heading in the help; hidden where empty
  Option show_default() const;
  // Limits of a number, or of each in a list. Without: from 0, which is a default that few options
  // want otherwise.
  Option between(double low, double high) const;
  Option at_least(double low) const;
  Option one_of(std::vector<std::string> words) const;
  // Values that a shell completes; the option may take others.
  Option suggest(const std::vector<std::string>& words) const;
  Option needs(const Option& other) const;
  // Of lists: "A,B" in one argument, or one value each time that the option is given.
  Option separated_by_commas() const;
  Option one_each_time() const;
  // May be given without a value, which is this one then.
  Option or_alone(const std::string& value) const;

 private:
  CLI::Option* option_;
  std::shared_ptr<Range> range_;
};

// A subcommand.
class Command {
 public:
  // Returns the exit code, or throws.
  using Action = std::function<int()>;

  Command(CLI::App* app, Action* chosen) : app_(app), chosen_(chosen) {}

  // `names`: "--ranks,-n", or "file" for what stands without a name. The value has its default, and
  // outlives the command.
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
  // An option whose words are read by `take` each time that it is given, in the order in which
  // options are: one word, or several of a list. What it throws, as an Error, is told with the
  // option's name.
  using Take = std::function<void(const std::vector<std::string>& words)>;
  Option add_words(const std::string& names, Take take, const std::string& meaning, bool list);
  // Likewise, of an option without a value: "--name" is true, "--name=false" false.
  Option add_switch(const std::string& names, std::function<void(bool)> take,
                    const std::string& meaning);
  // "!--name" sets it to false.
  Option add_flag(const std::string& names, bool& value, const std::string& meaning = {});

  void footer(const std::string& text);
  void hide();
  // What follows the words without a name belongs to these: `tutti run program --flag`.
  void positionals_at_end();
  // What it does when it is the one given.
  void runs(Action action);

  // How often an option was given.
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
  // Reads the option `other` as the words `own`, in each command that has the option own[0] and
  // none called `other`. Its value comes after own[0]: {"--load", {"--checkpoint", "--resume"}}
  // reads "--load DIR" as "--checkpoint DIR --resume". Underscores in options need no alias:
  // --micro_batch is read as --micro-batch.
  void add_alias(const std::string& other, std::vector<std::string> own);
  // Does what the words say; returns the exit code. A UsageError is told with where to find help;
  // the code is 2 then.
  // `check` sees the words before they are read, and may throw UsageError.
  using Check = std::function<void(const std::vector<std::string>& words)>;
  int run(int argc, const char* const* argv, const Check& check = {});
  // Does what these words say, which follow a program's name. Throws UsageError.
  void parse(const std::vector<std::string>& words);
  // Commands, options or values that begin with the last of these words, which may be empty. None
  // where any word is allowed, such as a file's name.
  std::vector<std::string> completions(const std::vector<std::string>& words) const;

 private:
  std::string problem(const std::string& error) const;
  CLI::App* command_named(const std::string& word) const;  // null where there is none
  std::vector<std::string> values_after(const std::vector<std::string>& words) const;
  int complain(const std::string& problem) const;
  // " (did you mean --data?)" where an option or a command has such a name.
  std::string suggestion(const std::string& word) const;
  // The words with aliases replaced, up to those of a program that a command starts.
  std::vector<std::string> without_aliases(const std::vector<std::string>& words) const;
  // The words that the alias `word` stands for; none where `command` has no such alias.
  std::vector<std::string> meaning_of(const std::string& word, const CLI::App& command) const;
  void read(const std::vector<std::string>& words);

  std::unique_ptr<CLI::App> app_;
  std::map<std::string, std::vector<std::string>> aliases_;
  Command::Action chosen_;
};

}  // namespace tutti
