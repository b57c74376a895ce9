// Aliases for options of mpirun, torchrun and nccl-tests that have other names in Tutti.
#include "tools/tutti/aliases.h"

#include <algorithm>
#include <iostream>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "tools/launcher/launcher.h"
#include "training/setup/aliases.h"

namespace tutti::tool {
namespace {

constexpr std::pair<const char*, const char*> kAliases[] = {
    // names in mpirun and torchrun
    {"-np", "--ranks"},
    {"--np", "--ranks"},
    {"--nproc-per-node", "--ranks"},
    // names in nccl-tests
    {"-b", "--min"},
    {"--minbytes", "--min"},
    {"-e", "--max"},
    {"--maxbytes", "--max"},
    {"-f", "--factor"},
    {"--stepfactor", "--factor"},
    {"-d", "--dtype"},
    {"--datatype", "--dtype"},
    {"-o", "--op"},
    {"-r", "--root"},
    {"--iters", "--iterations"},
};

// Returns the value of an option, given as two words or with '='; empty if it is absent.
std::string value_of(std::string_view option, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == option && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with(cat(option, '='))) return words[i].substr(option.size() + 1);
  }
  return "";
}

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

void add_aliases(CommandLine& line) {
  training::add_aliases(line);
  for (const auto& [other, own] : kAliases) line.add_alias(other, {own});
}

void check_borrowed_options(const std::vector<std::string>& words) {
  if (words.empty()) return;
  if (words[0] == "train") {
    const std::string from = value_of("--load", words);
    const std::string to = value_of("--save", words);
    if (!from.empty() && !to.empty() && from != to) {
      throw UsageError(
          cat("--load ", from, " and --save ", to,
              " differ, but a run continues in its own directory: name one directory, or start a "
              "run anew from the stored model by --initial ",
              from));
    }
  }
  const bool of_nccl_tests = has(words, "-b") || has(words, "-e") || has(words, "-f");
  if (words[0] == "bench" && of_nccl_tests && has(words, "-n") && !is_launched()) {
    std::cerr << "tutti bench: note: -n is the number of ranks; nccl-tests' -n is --iterations\n";
  }
}

}  // namespace tutti::tool
