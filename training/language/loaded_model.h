// Loads a language model with its values into memory, for inference and evaluation.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "training/core/arena.h"
#include "training/kernels/quantized_weights.h"
#include "training/models/decoder.h"

namespace tutti::training {

struct LoadOptions {
  // Number of tokens in the model's context. Unset: the stored model's context, but at most
  // `needed`.
  std::optional<int64_t> context;
  int64_t needed = std::numeric_limits<int64_t>::max();
  DType dtype = DType::f32;
  // Format of the matrices of dense layers and of the token embedding
  // (ParameterSpec::is_quantizable). Each matrix is quantized while it is read. Unset: these
  // matrices have the type `dtype`, as all other parameters do.
  std::optional<WeightFormat> weights;
};

class LoadedModel {
 public:
  // Loads the model at `path`, an argument of open_model(). Throws Error(invalid_argument) if it is
  // not a language model, or the stored values do not fit the model.
  explicit LoadedModel(const std::string& path, const LoadOptions& options = {});

  Decoder& model() { return *model_; }
  // Returns the argument for make_tokenizer(); empty if the model has no tokenizer.
  const std::string& tokenizer() const { return tokenizer_; }
  // Returns the model's end-of-text tokens; empty if it names none.
  const std::vector<int32_t>& ends() const { return ends_; }
  // Returns the bytes that all parameters take in memory.
  int64_t weight_bytes() const { return weight_bytes_; }

 private:
  std::unique_ptr<Decoder> model_;
  std::string tokenizer_;
  std::vector<int32_t> ends_;
  Arena memory_;
  std::deque<QuantizedMatrix> quantized_;
  int64_t weight_bytes_ = 0;
};

}  // namespace tutti::training
