// Reading of a checkpoint that save.h wrote, at any number of ranks: any range of any tensor is
// assembled from the files that contain it.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "training/checkpoint/piecewise_source.h"

namespace tutti::training {

// The checksum of each piece is verified before its values are used (in files of earlier versions
// without such checksums, that of the whole file). A missing, truncated or damaged file throws an
// Error that names the file and, as a remedy, an older complete checkpoint beside it; there is no
// silent fallback. (A run that is resumed takes the newest complete step, and reports that:
// lineage.h.) Codes: invalid_argument; system if a file cannot be opened; unsupported if a newer
// version wrote it.
class Checkpoint : public PiecewiseSource {
 public:
  // Opens the folder of one step, or the step that was saved last in a directory of steps. Throws
  // as above, and if there is no step.
  static Checkpoint open(const std::string& directory);
  // Like open(FOLDER) and verify(), but errors do not suggest other checkpoints.
  static Checkpoint open_alone(const std::string& folder);
  void verify_alone() const;
  // Opens the folder of a step whose files this job has just verified, so that its pieces are read
  // without their checksums.
  static Checkpoint open_verified(const std::string& folder);

  // Folder of the step.
  const std::string& path() const { return where(); }
  // Checks that all files exist with their expected sizes, without reading them. Throws as above.
  void check_sizes() const;
  // Reads and verifies all files. Throws as above.
  void verify() const;
  // Reads and verifies one file. Throws as verify_alone().
  void verify_file(int file) const;

 private:
  explicit Checkpoint(std::string path);
  // A file whose values may be read if their checksums were verified.
  struct File {
    SafetensorsFile stored;
    bool is_verified = false;                        // the whole file
    std::set<std::string, std::less<>> pieces = {};  // verified individually
  };

  // The errors of these functions do not suggest other checkpoints.
  File& opened_file(int file) const;
  const std::byte* verified(const StoredPiece& piece, const std::string& name) const;
  const std::byte* bytes_of(const StoredPiece& piece, const std::string& name, size_t first,
                            size_t count) const override;
  static bool is_whole(const std::string& path);
  static Error refusal(const std::string& path, const Error& error);

  bool is_verified_ = false;                        // all files
  mutable std::vector<std::optional<File>> files_;  // empty: not opened yet
};

}  // namespace tutti::training
