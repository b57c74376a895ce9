// Exports a checkpoint to Hugging Face's directory format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "training/checkpoint/checkpoint.h"

namespace tutti::training::hugging_face {

struct ExportOptions {
  DType dtype = DType::f32;  // type of the exported tensors: f32, bf16 or f16
  // maximum bytes per file; a larger tensor gets a file of its own
  uint64_t max_shard_size = uint64_t{5} << 30;
  bool overwrite = false;  // replace an earlier export in the directory
};

// Writes config.json, the tensors in one file or in several with an index, and the files that came
// with the model when it was imported (`companions`: their folder, which may be missing). The
// directory appears atomically when everything is on the disk. Memory use is independent of the
// model's size.
//
// Throws Error(invalid_argument) if the directory is not empty (with `overwrite`: if it has files
// that no export wrote), contains the checkpoint's run or is inside it; Error(unsupported) for a
// model that no architecture can represent; and the errors of checkpoints.
void export_model(const Checkpoint& checkpoint, const std::string& companions,
                  const std::string& directory, const ExportOptions& options = {});

}  // namespace tutti::training::hugging_face
