// Steps and the end of a run as JSON: the lines of `tutti train --json`, and the fields of a Step
// and a Result in Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/logs/scalars.h"
#include "training/run/trainer.h"
#include "training/setup/data.h"

namespace tutti::training {

// tokens_per_s is over all that was trained since this process began, in elapsed_s without
// validation and checkpoints; tokens_per_s_step is of the step alone, and processor_s what
// processors spent on it for this rank. (For models that predict one
// token of a sample, or its class, "tokens" are samples.)
Json json_of(const StepReport& report, double units_per_sample);
// Of such a line, what CSV and TensorBoard files have of each step: these, as far as they are
// there.
// `losses` of the model's units are among them as "losses.NAME".
std::vector<std::string> scalar_names(const Model& model);
Scalars scalars_of(uint64_t step, const Json& line);
Json json_of(const TrainResult& result, const LoadedData& data, double units_per_sample, int ranks);
Json json_of(const MemoryReport& memory);
Json json_of(const PipelineReport& report, const PipelineOptions& options);

}  // namespace tutti::training
