// Reads a checkpoint that save.h wrote, on any number of ranks: any range of any tensor is
// assembled from the files that contain it.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "training/checkpoint/piecewise_source.h"

namespace tutti::training {

// A checkpoint whose values are verified before they are used. It verifies the checksum of each
// piece or, if an earlier version wrote the file without checksums of pieces, the checksum of the
// whole file. A missing, truncated or damaged file throws an Error that names the file and suggests
// another complete checkpoint beside it, if possible an older one. The class never falls back to
// another step; choose_step() does so for a resumed run, and lists the steps that it skipped
// (lineage.h). Error codes: invalid_argument; system if a file cannot be opened; unsupported if a
// newer version wrote the checkpoint.
class Checkpoint : public PiecewiseSource {
 public:
  // Opens the folder of a step, or a directory of steps, from which it takes the step that was
  // saved last. Throws the errors that are described above the class, and Error(invalid_argument)
  // if there is no step.
  static Checkpoint open(const std::string& directory);
  // Do the same as open(FOLDER) and verify(), except that their errors do not suggest another
  // checkpoint.
  static Checkpoint open_alone(const std::string& folder);
  void verify_alone() const;
  // Opens the folder of a step whose files this job has just verified. Pieces are then read without
  // verifying their checksums again.
  static Checkpoint open_verified(const std::string& folder);

  // Returns the folder of the step.
  const std::string& path() const { return where(); }
  // Checks that all files exist with their expected sizes, without reading them. Throws the errors
  // that are described above the class.
  void check_sizes() const;
  // Reads and verifies all files. Throws the errors that are described above the class.
  void verify() const;
  // Reads and verifies one file. Its errors do not suggest another checkpoint.
  void verify_file(int file) const;

 private:
  explicit Checkpoint(std::string path);
  // An open file, and a record of the checksums that have been verified.
  struct File {
    SafetensorsFile stored;
    bool is_verified = false;  // true if the checksum of the whole file was verified
    // names of the pieces that were verified individually
    std::set<std::string, std::less<>> pieces = {};
  };

  // Opens a file, or returns it if it is open. The errors of opened_file() and verified() do not
  // suggest another checkpoint.
  File& opened_file(int file) const;
  const std::byte* verified(const StoredPiece& piece, const std::string& name) const;
  const std::byte* bytes_of(const StoredPiece& piece, const std::string& name, size_t first,
                            size_t count) const override;
  static bool is_whole(const std::string& path);
  static Error refusal(const std::string& path, const Error& error);

  // true if the job has already verified all files
  bool is_verified_ = false;
  mutable std::vector<std::optional<File>> files_;  // indexed by file; unset until it is opened
};

}  // namespace tutti::training
