// Implements tutti data: shows token files and the number of epochs of each in a mixture, and
// checks the samples of ranks.
#include <cinttypes>
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
#include "training/run/epoch_check.h"

namespace tutti::tool {
namespace {

struct DataOptions {
  std::vector<std::string> data;
  std::vector<double> weights;
  std::string tokens;
  bool epoch_check = false;
  int64_t context = 1;
  training::EpochCheckOptions check;
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

// Checks the samples of ranks. Returns the exit code: 1 if an epoch misses or repeats a sample, if
// two epochs have about the same order, or if a run that is resumed on more ranks has other
// samples.
int check_epochs(const std::vector<Set>& sets, const DataOptions& options) {
  training::EpochCheckOptions check = options.check;
  for (const Set& set : sets)
    check.sizes.push_back(set.tokens / static_cast<uint64_t>(options.context));
  check.weights = options.weights;
  const training::EpochCheck found = training::check_epochs(check);
  std::printf("%-24s %6s %10s %9s %8s %21s\n", "data set", "epoch", "taken", "repeated", "missing",
              "places as before");
  for (const training::EpochCount& count : found.epochs) {
    std::printf("%-24s %6" PRIu64 " %10" PRIu64 " %9" PRIu64 " %8" PRIu64 " %21" PRIu64 "\n",
                sets[count.data_set].name.c_str(), count.epoch, count.taken, count.repeated,
                count.missing, count.same_place);
  }
  std::printf("%d ranks, %" PRIu64 " steps of %" PRIu64 "; resumed at step %" PRIu64
              " on %d ranks: %s samples in the same order\n%s\n",
              check.ranks, found.steps, check.batch, found.resumed_at, found.resumed_ranks,
              found.same_after_resume ? "the same" : "OTHER",
              found.holds()
                  ? "ok: each sample once an epoch, on one rank, in another order each epoch"
                  : "WRONG");
  return found.holds() ? 0 : 1;
}

int data(const DataOptions& options) {
  std::vector<Set> sets;
  for (const std::string& name : options.data) sets.push_back(read_set(name));
  for (const Set& set : sets) print_set(set);
  if (!options.tokens.empty()) print_mixture(sets, options);
  return options.epoch_check ? check_epochs(sets, options) : 0;
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
  command
      .add_option(
          "--tokens", options->tokens,
          "number of training tokens of a run; prints the tokens and epochs of each data set")
      .type_name("COUNT");
  command.add_option(
      "--data-weights", options->weights,
      "sampling weight of each data set, as in `tutti train` (default: proportional to its size)");
  constexpr auto kGroup = "Epoch check";
  const Option check =
      command
          .add_flag(
              "--epoch-check", options->epoch_check,
              "check that in each epoch exactly one rank takes each sample, that the order of "
              "samples differs between epochs, and that both hold after resuming on another "
              "number of ranks")
          .group(kGroup);
  const auto add = [&](const char* option, auto& value, const char* meaning) {
    return command.add_option(option, value, meaning).group(kGroup).needs(check).show_default();
  };
  add("--context", options->context, "number of tokens per sample").between(1, 1 << 30);
  add("-n,--ranks", options->check.ranks, "number of data-parallel ranks").between(1, 1 << 16);
  add("--batch", options->check.batch, "samples per step over all ranks").between(1, 1 << 30);
  add("--micro-batch", options->check.micro_batch, "samples per micro-batch").between(1, 1 << 30);
  add("--epochs", options->check.epochs, "minimum number of epochs of each data set")
      .between(1, 1000);
  add("--seed", options->check.seed, "seed of the sample order");
  command.footer(
      "Examples:\n"
      "  tutti data train.bin\n"
      "  tutti data 60000 --epoch-check -n 4 --batch 32\n"
      "  tutti data 410B 19B 12B 55B 3B --data-weights 60 22 8 8 3 --tokens 300B");
  command.runs([options] { return data(*options); });
}

}  // namespace tutti::tool
