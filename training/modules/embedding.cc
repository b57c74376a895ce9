#include "training/modules/embedding.h"

#include "training/kernels/embedding.h"
#include "training/kernels/quantized_weights.h"

namespace tutti::training {
namespace {

Placement place_of(const ParameterTable& table, bool is_cut) {
  if (!is_cut || table.mesh().size(Axis::tensor) == 1) return {};
  return {.cuts = {{Axis::tensor, 0}}};
}

}  // namespace

Embedding::Embedding(ParameterTable& table, const std::string& name, int64_t rows, int64_t width,
                     double deviation, bool is_cut)
    : rows_{0, rows},
      width_(width),
      weight_(table.add(name + ".weight", {rows, width}, {Initial::Kind::normal, deviation},
                        place_of(table, is_cut))) {
  const MeshPlace& mesh = table.mesh();
  if (is_cut) {
    table.mark_quantizable();
    rows_.first = even_share(rows, mesh.place(Axis::tensor), mesh.size(Axis::tensor)).first;
  }
}

void Embedding::forward(std::span<const int32_t> indices, Tensor output, Saved& saved) const {
  if (weight_->quantized != nullptr) return look_up(*weight_->quantized, indices, output);
  const Tensor& weight = weight_->value;
  require_shapes(rows_.first + weight.rows <= rows_.all && output.cols == width_, "embedding");
  saved.indices = indices;
  embedding(weight, rows_, indices, output);
}

void Embedding::backward_weight(Pass& pass, const Saved& saved) const {
  embedding_backward(saved.output_gradient, saved.indices, rows_, weight_->gradient, pass.arena);
}

}  // namespace tutti::training
