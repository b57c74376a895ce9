// Implements tutti plan --memory: shows how much memory a model's parameters and their training
// need. Does not search for a parallel layout.
#include "training/planner/memory.h"

#include <cstdio>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/named.h"
#include "tools/tutti/plan/faces.h"
#include "training/planner/model_memory.h"

namespace tutti::tool {

namespace {

namespace planner = training::planner;

constexpr double kGB = 1e9;
constexpr double kBucket = 25 << 20;  // default of --bucket-mb in `tutti train`, in bytes
constexpr int kStages = 4;            // number of ZeRO stages

struct MemoryQuestion {
  double parameters = 0;
  std::optional<planner::ModelShape> shape;  // empty if only the number of parameters is known
};

MemoryQuestion question_of(const std::string& model) {
  if (const auto number = parse_tokens(model)) return {static_cast<double>(*number), {}};
  const planner::ModelShape shape = planner::load_model_shape(model);
  return {static_cast<double>(planner::parameters(shape)), shape};
}

Json print_row(const std::string& what, double bytes) {
  std::printf("%-52s %10.2f %10.2f\n", what.c_str(), bytes / kGB, bytes / planner::kGiB);
  return bytes;
}

Json print_types(double parameters) {
  Json types = Json::object();
  for (const planner::ParameterType& type : planner::kParameterTypes) {
    types[type.name] = print_row(cat("parameters in ", type.name), type.bytes * parameters);
  }
  return types;
}

// Prints the bytes of mixed-precision training with Adam: 2 + 2 + (4 + 4 + 4) per parameter.
Json print_states(double parameters) {
  return {{"parameters", print_row("parameters, 16 bits", 2 * parameters)},
          {"gradients", print_row("gradients, 16 bits", 2 * parameters)},
          {"optimizer", print_row("masters and two moments, 32 bits", 12 * parameters)},
          {"total", print_row("model states: 16 bytes a parameter", 16 * parameters)},
          {"total_fp32_gradients", print_row("with gradients in 32 bits: 18", 18 * parameters)},
          {"total_gradient_copy",
           print_row("with another copy of gradients in 32 bits: 20", 20 * parameters)}};
}

Json print_zero(double parameters, int ranks) {
  constexpr const char* kVolumes[kStages] = {"2", "2", "2", "3"};  // values sent per parameter
  Json stages = Json::array();
  for (int stage = 0; stage < kStages; ++stage) {
    const double bytes = planner::zero_bytes(parameters, stage, ranks);
    stages.push_back(print_row(cat("a rank of ", ranks, ", ZeRO ", stage, " (sends ",
                                   kVolumes[stage], " values a parameter)"),
                               bytes));
  }
  return stages;
}

Json print_residual(const planner::ModelShape& shape, int64_t batch, int64_t sequence) {
  const planner::ResidualStates states = planner::residual_states(shape, batch, sequence, kBucket);
  return {
      {"activations",
       print_row(cat("activations of ", batch, " x ", sequence, " tokens"), states.activations)},
      {"recomputed", print_row("the same with full recomputation", states.recomputed)},
      {"flat_buffer", print_row("all gradients in one buffer, 32 bits", states.flat_buffer)},
      {"fixed_buffer", print_row("a buffer of constant size (--bucket-mb)", states.fixed_buffer)}};
}

}  // namespace

int plan_memory(const PlanOptions& o) {
  if (o.model.empty()) throw UsageError("--memory needs --model");
  const MemoryQuestion question = question_of(o.model);
  const bool has_batch = o.global_batch && o.sequence;
  if (has_batch && !question.shape) {
    throw UsageError("--global-batch and --seq need a --model with layers, not a number");
  }
  std::printf("%-52s %10s %10s\n",
              cat(o.model, ": ", question.parameters / kGB, "e9 parameters").c_str(), "GB", "GiB");
  Json document = {{"model", o.model}, {"parameters", question.parameters}};
  document["types"] = print_types(question.parameters);
  document["states"] = print_states(question.parameters);
  if (o.gpus) document["zero"] = print_zero(question.parameters, *o.gpus);
  if (has_batch) {
    document["residual"] = print_residual(*question.shape, *o.global_batch, *o.sequence);
  }
  if (!o.json.empty()) write_file(o.json, document.dump(2) + "\n");
  return 0;
}

}  // namespace tutti::tool
