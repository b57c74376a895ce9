// Checks that a file with initial parameters fits the model.
#pragma once

#include <string>
#include <vector>

#include "training/checkpoint/tensor_source.h"
#include "training/core/model.h"

namespace tutti::training {

// Returns the first few of these names for a message: "a, b, c and 9 more".
std::string some_of(const std::vector<std::string>& names);

// Returns the names of the tensors that contain a NaN or an infinity. Reads the whole source.
std::vector<std::string> not_finite(const TensorSource& source);

// Reads the whole source, which has a tensor "model.NAME" for each parameter. Throws
// Error(invalid_argument) that names the tensors that are missing, unknown, of another shape, or
// not finite. If the model ties its output layer to its embedding, the file may also store the
// output layer as a copy of the embedding (some GPT-2 files do).
void check_initial(Model& model, const TensorSource& source, const std::string& path);

}  // namespace tutti::training
