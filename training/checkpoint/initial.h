// Parameters to start from: does a file fit the model?
#pragma once

#include <string>
#include <vector>

#include "training/checkpoint/tensor_source.h"
#include "training/core/model.h"

namespace tutti::training {

// The first of these names, for a message: "a, b, c and 9 more".
std::string some_of(const std::vector<std::string>& names);

// The names of the tensors with a NaN or an infinity. Reads all of the source.
std::vector<std::string> not_finite(const TensorSource& source);

// Reads all of the source, "model.NAME" for each parameter. Throws Error(invalid_argument) that
// names what is missing, what the model does not have, what has another shape, and what has values
// that are not finite. An output layer that repeats the embedding of a model that shares the two
// (as some files of GPT-2 have) is no surplus.
void check_initial(Model& model, const TensorSource& source, const std::string& path);

}  // namespace tutti::training
