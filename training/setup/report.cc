#include "training/setup/report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <numbers>

#include "base/reduce.h"
#include "base/text.h"

namespace tutti::training {

namespace {

constexpr const char* kLosses = "losses";
constexpr const char* kBalanceLoss = "balance_loss";
constexpr std::array kScalars = {
    "loss",        "lr",          "grad_norm",      "tokens_per_s",  "tokens_per_s_step",
    "elapsed_s",   "processor_s", "bytes_sent",     "waiting_share", "loss_scale",
    "noise_scale", "perplexity",  "validation_loss"};

void add_validation(Json& line, const Evaluation& validation) {
  line["validation_loss"] = validation.loss;
  if (validation.of_tokens) line["perplexity"] = std::exp(validation.loss);
}

}  // namespace

Json json_of(const StepReport& report, double units_per_sample) {
  Json line = {{"step", report.step},
               {"loss", report.result.loss},
               {"lr", report.learning_rate},
               {"grad_norm", report.result.gradient_norm},
               {"tokens_per_s", report.samples_per_second * units_per_sample},
               {"tokens_per_s_step", report.step_samples_per_second * units_per_sample},
               {"elapsed_s", std::chrono::duration<double>(report.elapsed).count()},
               {"processor_s", report.processor_seconds},
               {"bytes_sent", report.bytes_sent},
               {"waiting_share", report.waiting_share},
               {"epochs", report.epochs}};
  Json by_axis = Json::object();
  for (const Axis axis : kAllAxes) {
    const double bytes = report.bytes_by_axis[static_cast<size_t>(axis)];
    if (bytes > 0) by_axis[std::string(name(axis))] = bytes;
  }
  if (!by_axis.empty()) line["bytes_sent_by_axis"] = by_axis;
  if (report.result.loss_scale != 1) line["loss_scale"] = report.result.loss_scale;
  if (!report.result.losses.empty()) line[kLosses] = report.result.losses;
  if (const auto& load = report.result.expert_load; !load.empty()) {
    line["expert_load"] = load;
    line["dropped"] = report.result.dropped;
  }
  if (const auto balance = report.result.losses.find(kBalanceLoss);
      balance != report.result.losses.end()) {
    line[kBalanceLoss] = balance->second;
  }
  if (report.result.skipped) line["overflow"] = report.result.overflow;
  if (std::isfinite(report.noise_scale)) line["noise_scale"] = report.noise_scale;
  if (report.validation) add_validation(line, *report.validation);
  return line;
}

std::vector<std::string> scalar_names(const Model& model) {
  std::vector<std::string> names(kScalars.begin(), kScalars.end());
  for (const std::unique_ptr<Unit>& unit : model.units()) {
    for (const std::string& loss : unit->losses()) {
      const std::string name = cat(kLosses, '.', loss);
      if (std::ranges::count(names, name) == 0) names.push_back(name);
    }
  }
  return names;
}

Scalars scalars_of(uint64_t step, const Json& line) {
  Scalars scalars{step, {}};
  for (const char* const name : kScalars) {
    const Json* value = line.find(name);
    if (value != nullptr && value->is_number())
      scalars.values.emplace_back(name, value->get<double>());
  }
  if (const Json* losses = line.find(kLosses)) {
    for (const auto& [name, value] : losses->items()) {
      scalars.values.emplace_back(cat(kLosses, '.', name), value.get<double>());
    }
  }
  return scalars;
}

Json json_of(const MemoryReport& memory) {
  return {{"parameters", memory.storage.parameters},
          {"gradients", memory.storage.gradients},
          {"masters", memory.storage.masters},
          {"optimizer", memory.optimizer},
          {"padding", memory.storage.padding},
          {"gathered", memory.storage.gathered},
          {"activations", memory.activations},
          {"boundaries", memory.boundaries},
          {"compression", memory.compression},
          {"copies", memory.copies},
          {"files", memory.files},
          {"pages", memory.pages}};
}

Json json_of(const PipelineReport& report, const PipelineOptions& options) {
  return {{"schedule", options.schedule},      {"stages", report.activations.size()},
          {"virtual", options.virtual_stages}, {"cut", report.cut},
          {"activations", report.activations}, {"activation_bytes", report.activation_bytes}};
}

Json json_of(const TrainResult& result, const LoadedData& data, double units_per_sample,
             int ranks) {
  const Evaluation& validation = result.validation;
  Json all = Json::object();
  if (validation.targets > 0) {
    add_validation(all, validation);
    // Each token of a text is a byte. The number of bytes of a token file is unknown.
    const bool of_bytes = data.text_bytes > 0;
    all[of_bytes ? "validation_bits_per_byte" : "validation_bits"] =
        validation.loss / std::numbers::ln2;
    all["validation_samples"] = validation.targets;
    all["validation_accuracy"] = validation.correct;
  } else {
    if (result.stopped_by != 0) all["stopped_by_signal"] = result.stopped_by;
    all["stopped_at"] = result.step;
  }
  all["bigram_entropy"] = data.bigram_entropy;
  all["instruction_set"] = name(selected_instruction_set());
  all["samples_per_s"] = result.samples_per_second;
  all["tokens_per_s"] = result.samples_per_second * units_per_sample;
  all["communication_share"] = result.waiting_share;
  all["ranks"] = ranks;
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const RankReport& report = result.ranks[rank];
    Json worker = {{"rank", rank},
                   {"clock", report.clock},
                   {"waited_s", report.waited_seconds},
                   {"waited_for_data_s", report.waited_for_data_seconds},
                   {"bytes_sent", report.bytes_sent}};
    if (report.staleness) {
      worker["staleness"] = {{"mean", report.staleness->mean},
                             {"largest", report.staleness->largest}};
    }
    if (!result.digests.empty()) worker["digest"] = result.digests.at(rank);
    all["workers"].push_back(std::move(worker));
  }
  if (!result.digest.empty()) all["digest"] = result.digest;
  for (const FactorTraffic& layer : result.factors) {
    all["factors"][layer.name] = {{"rows", layer.rows},
                                  {"bytes", layer.factor_bytes},
                                  {"gradient_bytes", layer.gradient_bytes}};
  }
  all["resumed_at"] = result.resumed_at;
  all["epochs"] = result.epochs;
  if (!result.run.empty()) all["run"] = result.run;
  if (result.checkpoints > 0) {
    all["checkpoints"] = result.checkpoints;
    all["checkpoint_s"] = result.checkpoint_seconds;
  }
  all["memory"] = json_of(result.memory);
  all["process_bytes"] = result.process_bytes;
  return all;
}

}  // namespace tutti::training
