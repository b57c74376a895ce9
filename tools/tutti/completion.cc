// tutti completion: shell completion of commands, options and their values.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tools/tutti/commands.h"

namespace tutti::tool {
namespace {

// Both scripts ask this program for completions of each word and fall back to file names.
constexpr const char* kBash = R"(_tutti() {
  mapfile -t COMPREPLY < <("$1" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -F _tutti tutti
)";
constexpr const char* kZsh = R"(#compdef tutti
_tutti() {
  local -a found
  found=("${(@f)$("$words[1]" completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  found=(${found:#})
  if (( $#found )); then compadd -- $found; else _files; fi
}
# Read as a function that zsh has found by its name, or as a script.
if [ "$funcstack[1]" = _tutti ]; then _tutti; else compdef _tutti tutti; fi
)";

struct CompletionOptions {
  std::string shell;
  std::vector<std::string> words;
};

int complete(const CommandLine& line, const CompletionOptions& options) {
  if (options.shell == "bash") std::cout << kBash;
  if (options.shell == "zsh") std::cout << kZsh;
  if (options.shell == "words") {
    for (const std::string& word : line.completions(options.words)) std::cout << word << '\n';
  }
  return 0;
}

}  // namespace

void add_completion(CommandLine& line) {
  const auto options = std::make_shared<CompletionOptions>();
  Command command = line.add("completion", "print the shell completion script");
  command.add_option("shell", options->shell, "shell: bash or zsh")
      .one_of({"bash", "zsh", "words"})
      .required();
  command.add_option("words", options->words, "").group("");  // hidden: the words typed so far
  command.footer(
      "Examples:\n"
      "  source <(tutti completion bash)                      in ~/.bashrc\n"
      "  source <(tutti completion zsh)                       in ~/.zshrc, after compinit\n"
      "Completes commands, options, and the names of collectives, operators, types and "
      "algorithms;\n"
      "elsewhere it completes file names.");
  command.runs([&line, options] { return complete(line, *options); });
}

}  // namespace tutti::tool
