#include "training/setup/report.h"

#include <chrono>
#include <numbers>

namespace tutti::training {

Json json_of(const StepReport& report, double units_per_sample) {
  Json line = {{"step", report.step},
               {"loss", report.result.loss},
               {"lr", report.learning_rate},
               {"grad_norm", report.result.gradient_norm},
               {"tokens_per_s", report.samples_per_second * units_per_sample},
               {"tokens_per_s_step", report.step_samples_per_second * units_per_sample},
               {"elapsed_s", std::chrono::duration<double>(report.elapsed).count()},
               {"bytes_sent", report.bytes_sent},
               {"waiting_share", report.waiting_share},
               {"epochs", report.epochs}};
  if (report.result.loss_scale != 1) line["loss_scale"] = report.result.loss_scale;
  if (!report.result.losses.empty()) line["losses"] = report.result.losses;
  if (report.result.skipped) line["overflow"] = report.result.overflow;
  if (report.validation) line["validation_loss"] = report.validation->loss;
  return line;
}

Json json_of(const MemoryReport& memory) {
  return {{"parameters", memory.storage.parameters}, {"gradients", memory.storage.gradients},
          {"masters", memory.storage.masters},       {"optimizer", memory.optimizer},
          {"padding", memory.storage.padding},       {"gathered", memory.storage.gathered},
          {"activations", memory.activations},       {"boundaries", memory.boundaries},
          {"compression", memory.compression}};
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
    all = {{"validation_loss", validation.loss},
           {"validation_bits_per_byte", validation.loss / std::numbers::ln2},
           {"validation_samples", validation.targets},
           {"validation_accuracy", validation.correct}};
  } else {
    if (result.stopped_by != 0) all["stopped_by_signal"] = result.stopped_by;
    all["stopped_at"] = result.step;
  }
  all["bigram_entropy"] = data.bigram_entropy;
  all["samples_per_s"] = result.samples_per_second;
  all["tokens_per_s"] = result.samples_per_second * units_per_sample;
  all["communication_share"] = result.waiting_share;
  all["ranks"] = ranks;
  all["resumed_at"] = result.resumed_at;
  all["epochs"] = result.epochs;
  if (!result.run.empty()) all["run"] = result.run;
  all["memory"] = json_of(result.memory);
  all["process_bytes"] = result.process_bytes;
  return all;
}

}  // namespace tutti::training
