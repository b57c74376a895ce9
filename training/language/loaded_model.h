// A language model with its values in memory, for what needs no training.
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
  // `path`: what open_model() takes. `context`: the tokens that it shall see; none: as many as it
  // was trained with, but not more than `needed`. Throws Error(invalid_argument) for what is no
  // language model, and where the values do not fit.
  LoadedModel(const std::string& path, std::optional<int64_t> context, DType dtype = DType::f32,
              int64_t needed = std::numeric_limits<int64_t>::max());

  Decoder& model() { return *model_; }
  // What make_tokenizer() takes; empty where none came with the model.
  const std::string& tokenizer() const { return tokenizer_; }
  // The tokens that end a text, as the model says; empty: it does not.
  const std::vector<int32_t>& ends() const { return ends_; }

 private:
  std::unique_ptr<Decoder> model_;
  std::string tokenizer_;
  std::vector<int32_t> ends_;
  Arena memory_;
};

}  // namespace tutti::training
