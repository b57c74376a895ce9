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

// A checkpoint whose values are verified before they are used: the checksum of each piece, or of
// the whole file if an earlier version wrote it without checksums of pieces. A missing, truncated
// or damaged file throws an Error that names the file and suggests an older complete checkpoint
// beside it. The class never falls back to another step by itself; a resumed run does so and
// reports it (lineage.h). Error codes: invalid_argument; system if a file cannot be opened;
// unsupported if a newer version wrote it.
class Checkpoint : public PiecewiseSource {
 public:
  // Opens `directory`, which is either the folder of one step or a directory of steps; of the
  // latter it opens the step that was saved last. Throws as described above, and if there is no
  // step.
  static Checkpoint open(const std::string& directory);
  // Like open(FOLDER) and verify(), but errors do not suggest other checkpoints.
  static Checkpoint open_alone(const std::string& folder);
  void verify_alone() const;
  // Opens the folder of a step whose files this job has just verified, so that its pieces are read
  // without their checksums.
  static Checkpoint open_verified(const std::string& folder);

  // Returns the folder of the step.
  const std::string& path() const { return where(); }
  // Checks that all files exist with their expected sizes, without reading them. Throws as above.
  void check_sizes() const;
  // Reads and verifies all files. Throws as above.
  void verify() const;
  // Reads and verifies one file. Throws as verify_alone().
  void verify_file(int file) const;

 private:
  explicit Checkpoint(std::string path);
  // An open file, and which of its bytes have had their checksums verified.
  struct File {
    SafetensorsFile stored;
    bool is_verified = false;  // true if the checksum of the whole file was verified
    // names of the pieces that were verified individually
    std::set<std::string, std::less<>> pieces = {};
  };

  // Opens a file or returns it if it is open. The errors of these functions do not suggest other
  // checkpoints.
  File& opened_file(int file) const;
  const std::byte* verified(const StoredPiece& piece, const std::string& name) const;
  const std::byte* bytes_of(const StoredPiece& piece, const std::string& name, size_t first,
                            size_t count) const override;
  static bool is_whole(const std::string& path);
  static Error refusal(const std::string& path, const Error& error);

  bool is_verified_ = false;                        // the job verified all files
  mutable std::vector<std::optional<File>> files_;  // by file; empty: not opened yet
};

}  // namespace tutti::training
