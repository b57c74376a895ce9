// tutti data: shows token files and the number of epochs of each in a mixture.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/named.h"
#include "training/data/sampler.h"
#include "training/data/token_file.h"

namespace tutti::tool {
namespace {

struct DataOptions {
  std::vector<std::string> data;
  std::vector<double> weights;
  std::string tokens;
};

struct Set {
  std::string name;
  uint64_t tokens = 0;
  std::optional<training::TokenSummary> file;
};

Set read_set(const std::string& name) {
  std::error_code error;
  const std::optional<uint64_t> tokens = parse_tokens(name);
  if (tokens && !std::filesystem::exists(name, error)) return {name, *tokens, std::nullopt};
  const training::TokenFile file(name);
  return {name, file.size(), file.summary()};
}

void print_set(const Set& set) {
  if (!set.file) return;
  const training::TokenFormat& format = set.file->format;
  std::printf("%s: %llu tokens, vocabulary size %lld, ", set.name.c_str(),
              static_cast<unsigned long long>(set.tokens),
              static_cast<long long>(format.vocabulary));
  if (format.end_of_text) {
    std::printf("end-of-text token %d, ", *format.end_of_text);
  }
  std::printf("%sfingerprint %016llx\n", format.marks_unpredicted ? "with marked prompts, " : "",
              static_cast<unsigned long long>(set.file->fingerprint));
}

// Uses the sampling of training (sampler.h).
void print_mixture(const std::vector<Set>& sets, const DataOptions& options) {
  const std::optional<uint64_t> tokens = parse_tokens(options.tokens);
  if (!tokens) {
    throw Error(ErrorCode::invalid_argument,
                cat("\"", options.tokens, "\" is not a number of tokens"),
                {.where = "--tokens", .remedy = "write it as 300B, 2.5M or 1000000"});
  }
  if (!options.weights.empty() && options.weights.size() != sets.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat(sets.size(), " data sets were given, but ", options.weights.size(), " weights"),
                {.where = "--data-weights", .remedy = "give one weight per data set, or none"});
  }
  std::vector<training::SampledSet> sampled;
  for (size_t i = 0; i < sets.size(); ++i) {
    const auto size = static_cast<double>(sets[i].tokens);
    sampled.push_back({sets[i].tokens, options.weights.empty() ? size : options.weights[i]});
  }
  const std::vector<uint64_t> taken = training::Sampler(sampled, 1).taken(*tokens);
  std::printf("%-24s %16s %8s %16s %8s\n", "data set", "tokens", "share", "taken", "epochs");
  for (size_t i = 0; i < sets.size(); ++i) {
    const auto share = static_cast<double>(taken[i]);
    std::printf(
        "%-24s %16llu %7.2f%% %16llu %8.3f\n", sets[i].name.c_str(),
        static_cast<unsigned long long>(sets[i].tokens), 100 * share / static_cast<double>(*tokens),
        static_cast<unsigned long long>(taken[i]), share / static_cast<double>(sets[i].tokens));
  }
}

int data(const DataOptions& options) {
  std::vector<Set> sets;
  for (const std::string& name : options.data) sets.push_back(read_set(name));
  for (const Set& set : sets) print_set(set);
  if (!options.tokens.empty()) print_mixture(sets, options);
  return 0;
}

}  // namespace

void add_data(CommandLine& line) {
  const auto options = std::make_shared<DataOptions>();
  Command command =
      line.add("data", "show token files and the number of epochs of each in a mixture");
  command
      .add_option("data", options->data,
                  "token files, or token counts such as 410B for data that is not on this host")
      .required()
      .type_name("FILE");
  const Option tokens =
      command
          .add_option(
              "--tokens", options->tokens,
              "number of training tokens of a run; prints the tokens and epochs of each data set")
          .type_name("COUNT");
  command
      .add_option("--data-weights", options->weights,
                  "sampling weight of each data set, as for `tutti train` (default: proportional "
                  "to its size)")
      .needs(tokens);
  command.footer(
      "Examples:\n"
      "  tutti data train.bin\n"
      "  tutti data 410B 19B 12B 55B 3B --data-weights 60 22 8 8 3 --tokens 300B");
  command.runs([options] { return data(*options); });
}

}  // namespace tutti::tool
