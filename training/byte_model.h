// A byte-level neural language model: embed the last k bytes, hidden layers, softmax over the next
// byte (Bengio, Ducharme, Vincent, Jauvin: A neural probabilistic language model, JMLR 2003).
//
//   contexts -> Embedding -> [Linear -> GELU] x layers -> Linear -> softmax cross-entropy
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "training/modules/embedding.h"
#include "training/modules/softmax_cross_entropy.h"
#include "training/parameters.h"
#include "training/text_data.h"

namespace tutti::training {

struct ByteModelConfig {
  int64_t context = 8;     // bytes
  int64_t embedding = 32;  // values per byte
  int64_t hidden = 256;    // values per hidden layer
  int64_t layers = 1;      // hidden layers
};

class ByteModel {
 public:
  // Throws Error(invalid_argument) for sizes below 1.
  explicit ByteModel(const ByteModelConfig& config);

  const ByteModelConfig& config() const { return config_; }
  ParameterLayout layout() const;
  // The model computes with these parameters from now on; they must outlive its last call.
  void bind(const Parameters& parameters);
  // The values are a function of the seed alone.
  void initialize(uint64_t seed);

  // Sum of the samples' losses in nats. The batch must live until backward() is done.
  double forward(const Batch& batch);
  // Adds scale * d(sum of losses)/dParameter to the gradients.
  void backward(float scale);

 private:
  // In the order of their parameters in the layout.
  std::vector<std::pair<std::string, Parametrized*>> named_parts() const;

  ByteModelConfig config_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<Module>> modules_;
  SoftmaxCrossEntropy loss_;
};

}  // namespace tutti::training
