// Checks of initial parameters: whether a file fits the model.
#pragma once

#include <string>
#include <vector>

#include "training/checkpoint/tensor_source.h"
#include "training/core/model.h"

namespace tutti::training {

// The first of these names, for messages: "a, b, c and 9 more".
std::string some_of(const std::vector<std::string>& names);

// Names of the tensors with a NaN or an infinity. Reads the whole source.
std::vector<std::string> not_finite(const TensorSource& source);

// Reads the whole source, "model.NAME" for each parameter. Throws Error(invalid_argument) that
// names tensors that are missing, unknown, of another shape, or not finite. An output layer that
// duplicates the embedding of a model that ties the two (as in some GPT-2 files) is accepted.
void check_initial(Model& model, const TensorSource& source, const std::string& path);

}  // namespace tutti::training
