#include "training/run/configuration.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/core/group.h"
#include "training/optimizers/registry.h"
#include "training/run/run_settings.h"

namespace tutti::training {
namespace {

// Name of the setting with the run's length, which a resumed run may always change.
constexpr const char* kSamples = "samples";
// Settings that a resumed run cannot change, because saved tensors would not fit or steps would be
// counted differently.
constexpr std::array kFixed = {"model", "optimizer", "batch"};

std::string describe(const std::vector<const DataSet*>& data) {
  std::string text;
  for (const DataSet* set : data) {
    char print[32];
    std::snprintf(print, sizeof print, "%016llx",
                  static_cast<unsigned long long>(set->fingerprint()));
    text += cat(text.empty() ? "" : " + ", set->size(), " examples with fingerprint ", print);
  }
  return text;
}

// Returns the settings that only C++ programs can choose, and the settings that follow from how a
// run was started.
Json unnamed_settings(const TrainOptions& options) {
  const ReplicaOptions& replica = options.replica;
  Json all = {{"bucket-mb", cat(replica.storage.bucket_elements, " elements, the first ",
                                replica.storage.first_bucket_elements)},
              {"allow-unused", replica.data_parallel.allow_unused},
              {"recompute", replica.runner.checkpoint_units ? "full" : "none or selective"},
              {"resume", !options.resume ? "no"
                                         : cat("from step ", options.resume_step.value_or(-1),
                                               options.resume_or_new ? " or anew" : "")},
              {"overwrite", options.overwrite},
              {"allow-changed", options.allow_changed},
              {"synchronizer of its own", static_cast<bool>(replica.synchronizer)},
              {"stops on request", static_cast<bool>(options.stop_requested)},
              {"seed of values", cat(replica.seed, " and ", replica.runner.seed)}};
  if (replica.loss_scaling) {
    const LossScalerOptions& scaling = *replica.loss_scaling;
    all["loss scaling"] = {scaling.initial_scale,   scaling.growth,     scaling.backoff,
                           scaling.growth_interval, scaling.hysteresis, scaling.smallest_scale};
  }
  return all;
}

Json everywhere(const Json& whole, const Json& run, const TrainOptions& options) {
  Json all = run;
  TrainOptions copy = options;
  Schema schema;
  describe(schema, copy);
  for (const Field& field : schema.fields()) {
    const Json* const value = find_member(whole, field.key());
    if (value != nullptr && field.role() != kOwn) all[field.short_name()] = *value;
  }
  for (const char* name : {"sp", "mix", "tp_overlap", "cp_kind", "partition_activations"}) {
    if (const Json* const value = find_member(whole, cat("parallel.", name))) all[name] = *value;
  }
  const Json more = unnamed_settings(options);
  for (const auto& [name, value] : more.items()) all[name] = value;
  all["trace"] = !options.trace.empty();
  return all;
}

struct Difference {
  std::string name;
  Json before;
  Json now;
};

// Returns the settings whose values differ. Ignores a setting that only one of the two runs has,
// because another setting determines whether it exists, as the optimizer determines whether beta1
// does.
std::vector<Difference> differences(const Json& before, const Json& now) {
  std::vector<Difference> found;
  for (const auto& [name, value] : before.items()) {
    const Json* const other = now.find(name);
    if (other != nullptr && *other != value) found.push_back({name, value, *other});
  }
  std::ranges::sort(found, {}, &Difference::name);
  return found;
}

// Returns "data: (old) in the checkpoint, (new) now". The same data in examples of another length
// have an equal fingerprint, and another number of examples.
std::string change_in_words(const Difference& change) {
  const std::string before = text_of_setting(change.before);
  const std::string now = text_of_setting(change.now);
  const size_t of_before = before.find(' ');
  const size_t of_now = now.find(' ');
  if (change.name != "data" || of_before == std::string::npos || of_now == std::string::npos ||
      before.substr(of_before) != now.substr(of_now)) {
    return cat(change.name, ": ", before, " in the checkpoint, ", now, " now");
  }
  return cat("data: ", before, " in the checkpoint, ", now.substr(0, of_now),
             " of the same data now");
}

// Lists at most kMost ranks whose settings differ from rank 0's, each with those settings.
std::string describe_ranks(const Communicator& communicator,
                           const std::vector<std::string>& texts) {
  constexpr int kMost = 8;
  const Json first = Json::parse(texts.front());
  std::string text;
  int others = 0;
  for (int rank = 1; rank < static_cast<int>(texts.size()); ++rank) {
    const Json own = Json::parse(texts[static_cast<size_t>(rank)]);
    const std::vector<Difference> found = differences(first, own);
    if (own == first || ++others > kMost) continue;
    text += cat(text.empty() ? "" : "; ", communicator.describe(rank), " has");
    const char* comma = " ";
    for (const Difference& one : found) {
      text += cat(comma, one.name, ' ', text_of_setting(one.now),
                  " (rank 0: ", text_of_setting(one.before), ')');
      comma = ", ";
    }
    if (found.empty()) text += " other settings";
  }
  if (others > kMost) text += cat("; in total ", others, " ranks differ from rank 0");
  return text;
}

void check_may_change(const std::string& name, const Json& saved, const Json& now) {
  const bool fixed = std::ranges::find(kFixed, name) != kFixed.end();
  if (!fixed && (now.contains(name) || saved.contains(name))) return;
  std::string names;
  for (const auto& [known, value] : now.items()) {
    if (std::ranges::find(kFixed, known) == kFixed.end()) {
      names += cat(names.empty() ? "" : ", ", known);
    }
  }
  throw Error(ErrorCode::invalid_argument,
              fixed ? cat("the ", name, " of a run cannot be changed")
                    : cat("unknown setting \"", name, "\""),
              {.where = "--allow-changed",
               .remedy = fixed ? "export the checkpoint and start a new run from it with --initial"
                               : cat("use some of ", names)});
}

}  // namespace

RunConfiguration configuration_of(const Model& model, const std::vector<const DataSet*>& data,
                                  const TrainOptions& options) {
  TrainOptions copy = options;
  Schema schema;
  describe(schema, copy);
  RunConfiguration all{.whole = options.configuration, .run = {}, .everywhere = {}};
  for (const Field& field : schema.fields()) {
    if (field.role() != kOnce) set_member(all.whole, field.key(), field.get());
  }
  all.whole["model"] = model.configuration();
  const Json optimizer = optimizer_kind_of(options.optimizer).complete(options.optimizer);
  for (const auto& [name, value] : optimizer.items()) all.whole["optimizer"][name] = value;
  all.whole["data"]["fingerprint"] = describe(data);
  all.run = settings_in(all.whole);
  all.everywhere = everywhere(all.whole, all.run, options);
  return all;
}

void check_same_everywhere(Communicator& communicator, const RunConfiguration& configuration) {
  const std::string own = configuration.everywhere.dump();
  if (same_on_all(communicator, own)) return;
  const std::vector<std::string> texts = gather_texts(communicator, own);
  const std::string who = text_of_first(
      communicator, communicator.rank() == 0 ? describe_ranks(communicator, texts) : "");
  throw_on_all(communicator, Error(ErrorCode::mismatch, "the ranks do not train the same model",
                                   {.where = who,
                                    .cause = "their data or training options differ",
                                    .remedy = "start every rank with the same files and options"}));
}

std::vector<std::string> check_resumed(const Json& saved, const RunConfiguration& now,
                                       const std::vector<std::string>& allowed,
                                       const std::string& where) {
  const Json before = settings_in(saved);
  std::vector<std::string> may_change;
  for (const std::string& name : allowed) {
    may_change.push_back(short_name_of(name));
    check_may_change(may_change.back(), before, now.run);
  }
  std::vector<std::string> passed;
  std::string refused;
  std::string names;
  bool fixed = false;
  for (const Difference& one : differences(before, now.run)) {
    const std::string text = change_in_words(one);
    if (one.name == kSamples || std::ranges::find(may_change, one.name) != may_change.end()) {
      passed.push_back(text);
      continue;
    }
    refused += cat(refused.empty() ? "" : "; ", text);
    names += cat(names.empty() ? "" : ",", one.name);
    fixed = fixed || std::ranges::find(kFixed, one.name) != kFixed.end();
  }
  if (refused.empty()) return passed;
  throw Error(ErrorCode::invalid_argument,
              cat("the options differ from those of the saved run: ", refused),
              {.where = where,
               .remedy = cat("use the options of the saved run",
                             fixed ? ", or start a new run in another directory"
                                   : cat(", or allow the change with --allow-changed ", names))});
}

}  // namespace tutti::training
