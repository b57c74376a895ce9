// Reading a checkpoint that save.h wrote, at any number of ranks: any range of any tensor is put
// together from whichever files have it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/manifest.h"
#include "training/checkpoint/tensor_source.h"

namespace tutti::training {

// A file's checksum is verified before its first value is used. What is missing, cut off or damaged
// is an Error that names the file and, where an older checkpoint beside it is whole, that one;
// nothing falls back to it silently. (A training that is resumed takes the newest step that is
// whole, and says so: lineage.h.) (Codes: invalid_argument; system where a file cannot be
// opened; unsupported where a newer Tutti wrote it.)
class Checkpoint : public TensorSource {
 public:
  // A folder of one step, or a directory of them: then the one that was saved last. Throws as
  // above, and where there is none.
  static Checkpoint open(const std::string& directory);
  // As open(FOLDER) and verify(); the errors say nothing of other checkpoints.
  static Checkpoint open_alone(const std::string& folder);
  void verify_alone() const;

  // The folder of the step.
  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  std::vector<std::string> names() const override;
  const TensorInfo* find(std::string_view name) const override;
  void read(std::string_view name, int64_t first, Tensor out) const override;
  // Reads all files. Throws as above.
  void verify() const;

 private:
  explicit Checkpoint(std::string path);
  // Its errors say nothing of other checkpoints.
  const SafetensorsFile& whole_file(int file) const;
  const std::byte* bytes_of(const StoredPiece& piece, const std::string& name) const;
  static bool is_whole(const std::string& path);
  static Error refusal(const std::string& path, const Error& error);

  const TensorEntry* entry(std::string_view name) const;

  std::string path_;
  Manifest manifest_;
  mutable std::vector<std::optional<SafetensorsFile>> files_;  // those that were verified
};

}  // namespace tutti::training
