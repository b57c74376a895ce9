// Exports models to, and imports them from, single files that other programs read and write.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/safetensors.h"
#include "training/checkpoint/tensor_source.h"

namespace tutti::training {

// Writes the model's parameters and buffers to the file `path` under their plain names
// ("wte.weight"). Converts parameters to `dtype` (f32, bf16 or f16); buffers stay f32. Replaces an
// existing file atomically once the new file is on the disk. Memory use is independent of the
// model's size.
void export_safetensors(const Checkpoint& checkpoint, const std::string& path,
                        DType dtype = DType::f32);

// Reads elements [first, first + out.size()) of the transpose of a stored matrix.
void read_transposed(const StoredTensor& stored, int64_t first, Tensor out);

// A model from one safetensors file: the file's tensor X is "model.X" here.
//
// Hugging Face's GPT-2 files (Conv1D layers) are supported and recognized by a c_attn weight of
// width x 3 width: their linear weights are stored as inputs x outputs and are transposed here; the
// prefix "transformer." is removed; causal masks (attn.bias, attn.masked_bias), which are not
// parameters, are skipped.
class ImportedModel : public TensorSource {
 public:
  // `renamed`: maps a parameter's name to its name in the file, where the two names differ. Throws
  // as SafetensorsFile does, and Error(invalid_argument) if a tensor that `renamed` names is
  // missing or two tensors would get the same name.
  explicit ImportedModel(const std::string& path,
                         const std::map<std::string, std::string>& renamed = {});

  const std::map<std::string, std::string>& metadata() const { return file_.metadata(); }
  std::vector<std::string> names() const override;
  const TensorInfo* find(std::string_view name) const override;
  void read(std::string_view name, int64_t first, Tensor out) const override;

 private:
  struct Entry {
    TensorInfo info;  // name, shape and type after conversion
    const StoredTensor* stored = nullptr;
    bool transposed = false;
  };
  void add(const std::string& name, const StoredTensor& stored, bool transposed);

  SafetensorsFile file_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tutti::training
