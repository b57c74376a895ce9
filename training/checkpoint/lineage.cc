#include "training/checkpoint/lineage.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "base/text.h"
#include "training/checkpoint/step_directory.h"

namespace tutti::training {
namespace {

std::string folder_of(const std::string& directory, int64_t step) {
  return cat(directory, '/', step_name(step));
}

Checkpoint opened(const std::string& directory, int64_t step) {
  Checkpoint checkpoint = Checkpoint::open_alone(folder_of(directory, step));
  if (checkpoint.manifest().step == step) return checkpoint;
  throw Error(ErrorCode::invalid_argument,
              cat(checkpoint.path(), " was renamed: it holds step ", checkpoint.manifest().step));
}

// Returns the step that `latest` names, or nothing if the file is unreadable.
std::optional<int64_t> readable_latest(const std::string& directory) {
  try {
    return latest_step(directory);
  } catch (const Error&) {
    return std::nullopt;
  }
}

const StepFolder* find(const std::vector<StepFolder>& steps, std::optional<int64_t> step) {
  const auto found = std::ranges::find_if(
      steps, [&](const StepFolder& seen) { return step == seen.step && !seen.error; });
  return found == steps.end() ? nullptr : &*found;
}

// Returns the ID of the run to continue: the run of the step `named` or, if that step is missing or
// unreadable, the only run in the directory. Throws if there are several runs.
std::string run_of(const std::vector<StepFolder>& steps, const std::string& directory,
                   std::optional<int64_t> named) {
  if (const StepFolder* seen = find(steps, named)) return seen->run;
  std::set<std::string> runs;
  for (const StepFolder& seen : steps) {
    if (!seen.run.empty()) runs.insert(seen.run);
  }
  if (runs.size() <= 1) return runs.empty() ? "" : *runs.begin();
  throw Error(ErrorCode::invalid_argument,
              cat(directory, " holds ", describe_runs(steps),
                  ", and its file `latest` does not name one of them"),
              {.remedy = "select a step of the run: --resume STEP"});
}

std::string listed(const std::vector<StepFolder>& steps) {
  std::string text;
  for (const StepFolder& seen : steps) text += cat(text.empty() ? "" : ", ", seen.step);
  return text;
}

// Returns the steps that may be resumed, the preferred one (the newest) first.
std::vector<int64_t> candidates(const std::vector<StepFolder>& steps, const std::string& run,
                                std::optional<int64_t> wanted, std::optional<int64_t> latest) {
  std::vector<int64_t> all;
  for (const StepFolder& seen : steps) {
    // Unreadable steps, whose run is unknown, are candidates, so that skipping them is reported.
    const bool own = seen.error || seen.run == run || seen.run.empty();
    if (own && seen.step <= wanted.value_or(seen.step)) all.push_back(seen.step);
  }
  std::ranges::reverse(all);
  // In the earlier format, which has no run IDs, steps after the one that the file `latest` names
  // belong to an abandoned run. They are tried last.
  if (run.empty() && latest && !wanted) {
    std::ranges::stable_partition(all, [&](int64_t step) { return step <= *latest; });
  }
  return all;
}

}  // namespace

std::string new_run_identity() {
  std::random_device random;
  std::string identity;
  for (int i = 0; i < 4; ++i) {
    std::array<char, 9> word{};
    std::snprintf(word.data(), word.size(), "%08x", static_cast<unsigned>(random()));
    identity += word.data();
  }
  return identity;
}

std::vector<StepFolder> scan_steps(const std::string& directory) {
  std::vector<StepFolder> steps;
  for (const int64_t step : steps_in(directory)) {
    StepFolder seen{.step = step, .run = {}, .error = {}};
    try {
      const Checkpoint checkpoint = opened(directory, step);
      seen.run = checkpoint.manifest().run;
      seen.fence = checkpoint.manifest().fence.number;
    } catch (const Error& error) {
      seen.error = error;
    }
    steps.push_back(std::move(seen));
  }
  return steps;
}

std::string describe_runs(const std::vector<StepFolder>& steps) {
  std::map<std::string, int64_t> last;
  for (const StepFolder& seen : steps) {
    const std::string name = seen.error ? "a run whose steps cannot be read"
                             : seen.run.empty()
                                 ? "a run of an earlier version of Tutti, without an identity,"
                                 : "run " + seen.run;
    last[name] = seen.step;
  }
  std::string text;
  for (const auto& [name, step] : last) {
    text += cat(text.empty() ? "" : " and ", name, " (its last step is ", step, ')');
  }
  return text;
}

ChosenStep choose_step(const std::string& directory, std::optional<int64_t> wanted,
                       const StepCheck& check) {
  const std::vector<StepFolder> steps = scan_steps(directory);
  if (steps.empty()) {
    throw Error(ErrorCode::invalid_argument, cat("no checkpoint found in ", directory),
                {.remedy = "use a directory that contains step-... folders"});
  }
  if (wanted && std::ranges::find(steps, *wanted, &StepFolder::step) == steps.end()) {
    throw Error(ErrorCode::invalid_argument, cat("no step ", *wanted, " found in ", directory),
                {.remedy = cat("use an existing step: ", listed(steps))});
  }
  const std::optional<int64_t> latest = readable_latest(directory);
  const std::string run = run_of(steps, directory, wanted ? wanted : latest);
  std::vector<ChosenStep::Skipped> skipped;
  for (const int64_t step : candidates(steps, run, wanted, latest)) {
    try {
      Checkpoint checkpoint = opened(directory, step);
      check(checkpoint);
      ChosenStep chosen{std::move(checkpoint), std::move(skipped), {}, {}, latest == step};
      for (const StepFolder& seen : steps) {
        const bool own = !seen.error && seen.step <= step && (seen.run == run || seen.run.empty());
        (own ? chosen.own : chosen.others).push_back(seen.step);
      }
      return chosen;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::unsupported) throw;
      skipped.push_back({step, error.what()});
    }
  }
  std::string why;
  for (const ChosenStep::Skipped& one : skipped) why += cat("; step ", one.step, ": ", one.why);
  throw Error(ErrorCode::invalid_argument, cat("no checkpoint in ", directory, " is complete", why),
              {.remedy = "restore a copy, or start a new run in another directory"});
}

}  // namespace tutti::training
