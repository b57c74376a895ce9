// Converts steps and the result of a run to JSON: the lines of `tutti train --json`, and the fields
// of a Step and a Result in Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/logs/scalars.h"
#include "training/run/trainer.h"
#include "training/setup/data.h"

namespace tutti::training {

// Returns a step as JSON. tokens_per_s covers all training since this process began. elapsed_s is
// the time of that training, without validation and checkpoints. tokens_per_s_step covers only the
// step, and processor_s is the CPU time that this rank spent on it. (For models that predict one
// token or class per sample, "tokens" are samples.)
Json json_of(const StepReport& report, double units_per_sample);
// Returns the names of the numbers in a step's JSON that CSV and TensorBoard files contain, if
// present. Losses of the model's units are "losses.NAME".
std::vector<std::string> scalar_names(const Model& model);
Scalars scalars_of(uint64_t step, const Json& line);
Json json_of(const TrainResult& result, const LoadedData& data, double units_per_sample, int ranks);
Json json_of(const MemoryReport& memory);
Json json_of(const PipelineReport& report, const PipelineOptions& options);

}  // namespace tutti::training
