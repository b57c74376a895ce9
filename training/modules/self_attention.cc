#include "training/modules/self_attention.h"

#include "base/text.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

const SelfAttentionOptions& checked(const SelfAttentionOptions& options) {
  if (options.heads < 1 || options.width % options.heads != 0) {
    throw Error(ErrorCode::invalid_argument,
                cat("a width of ", options.width, " cannot be cut into ", options.heads, " heads"),
                {.remedy = "give a width that is a multiple of the number of heads"});
  }
  return options;
}

}  // namespace

SelfAttention::SelfAttention(ParameterTable& table, const std::string& name,
                             const SelfAttentionOptions& options)
    : options_(checked(options)),
      in_(table, name + ".c_attn", options.width, 3 * options.width, {.bias = options.bias}),
      out_(table, name + ".c_proj", options.width, options.width,
           {.bias = options.bias, .deviation = options.output_deviation}) {
  if (options.rope) rope_.emplace(options.context, options.width / options.heads);
}

AttentionShape SelfAttention::shape(const Tensor& qkv) const {
  return {qkv.rows / options_.context, options_.context, options_.heads,
          options_.width / options_.heads};
}

void SelfAttention::project(Pass& pass, ConstTensor input, Saved& saved, Tensor qkv) const {
  saved.qkv = qkv;
  in_.forward(pass, input, saved.in, qkv);
  // Queries and keys, which lie side by side.
  if (rope_) rope_->rotate(qkv, 2 * options_.heads);
}

Tensor SelfAttention::attend(Pass& pass, Saved& saved) const {
  const AttentionShape shape = this->shape(saved.qkv);
  const DType type = saved.qkv.dtype;
  saved.attended = pass.arena.take(type, shape.rows(), shape.width());
  saved.lse = pass.arena.take(value_type(type), shape.samples * shape.heads, shape.context);
  causal_attention(shape, saved.qkv, saved.attended, saved.lse, pass.arena);
  return out_.forward(pass, saved.attended, saved.out);
}

Tensor SelfAttention::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const Tensor attended_gradient = out_.backward(pass, output_gradient, saved.out);
  const Tensor qkv_gradient = pass.arena.take(saved.qkv.dtype, saved.qkv.rows, saved.qkv.cols);
  causal_attention_backward(shape(saved.qkv), saved.qkv, saved.attended, saved.lse,
                            attended_gradient, qkv_gradient, pass.arena);
  if (rope_) rope_->rotate_back(qkv_gradient, 2 * options_.heads);
  return in_.backward(pass, qkv_gradient, saved.in);
}

}  // namespace tutti::training
