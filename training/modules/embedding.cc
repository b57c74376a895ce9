#include "training/modules/embedding.h"

#include "training/kernels/embedding.h"

namespace tutti::training {

Embedding::Embedding(ParameterTable& table, const std::string& name, int64_t rows, int64_t width,
                     double deviation)
    : rows_(rows),
      width_(width),
      weight_(table.add(name + ".weight", {rows, width}, {Initial::Kind::normal, deviation})) {}

void Embedding::forward(std::span<const int32_t> indices, Tensor output, Saved& saved) const {
  const Tensor& weight = weight_->value;
  require_shapes(weight.rows == rows_ && output.cols == width_, "embedding");
  saved.indices = indices;
  embedding(weight, indices, output);
}

void Embedding::backward_weight(Pass& pass, const Saved& saved) const {
  embedding_backward(saved.output_gradient, saved.indices, weight_->gradient, pass.arena);
}

}  // namespace tutti::training
