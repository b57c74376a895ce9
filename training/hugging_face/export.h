// From a checkpoint to one of Hugging Face's directories.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "training/checkpoint/checkpoint.h"

namespace tutti::training::hugging_face {

struct ExportOptions {
  DType dtype = DType::f32;                     // or bf16, f16
  uint64_t max_shard_size = uint64_t{5} << 30;  // bytes of tensors in one file, unless one has more
  bool overwrite = false;  // an earlier export in the directory goes when the model is there
};

// Writes config.json, the tensors in one file or in several with their index, and the files that
// came with the model when it was imported (`companions`: their folder, which may not be there).
// The directory is there at once, when all of it is on the disk. Memory does not grow with the
// model.
//
// Throws Error(invalid_argument) where the directory has files already (with `overwrite`: others
// than those of an export), or holds or lies in the checkpoint's run, Error(unsupported) for a
// model that no architecture has, and what checkpoints throw.
void export_model(const Checkpoint& checkpoint, const std::string& companions,
                  const std::string& directory, const ExportOptions& options = {});

}  // namespace tutti::training::hugging_face
