// A language model with its values in memory, for inference and evaluation.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "training/core/arena.h"
#include "training/models/decoder.h"

namespace tutti::training {

class LoadedModel {
 public:
  // `path`: the argument of open_model(). `context`: context length in tokens; none: as in
  // training, but at most `needed`. Throws Error(invalid_argument) if it is not a language model,
  // or the values do not match.
  LoadedModel(const std::string& path, std::optional<int64_t> context, DType dtype = DType::f32,
              int64_t needed = std::numeric_limits<int64_t>::max());

  Decoder& model() { return *model_; }
  // The argument for make_tokenizer(); empty if the model has no tokenizer.
  const std::string& tokenizer() const { return tokenizer_; }
  // End-of-text tokens of the model; empty if it names none.
  const std::vector<int32_t>& ends() const { return ends_; }

 private:
  std::unique_ptr<Decoder> model_;
  std::string tokenizer_;
  std::vector<int32_t> ends_;
  Arena memory_;
};

}  // namespace tutti::training
