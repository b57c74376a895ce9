// Reading a checkpoint that save.h wrote, at any number of ranks: any range of any tensor is put
// together from whichever files have it.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "training/checkpoint/piecewise_source.h"

namespace tutti::training {

// The checksum of each piece is verified before its first value is used (of a file by an earlier
// Tutti, which has no such checksums, that of the whole file). What is missing, cut off or damaged
// is an Error that names the file and, where an older checkpoint beside it is whole, that one;
// nothing falls back to it silently. (A training that is resumed takes the newest step that is
// whole, and says so: lineage.h.) (Codes: invalid_argument; system where a file cannot be
// opened; unsupported where a newer Tutti wrote it.)
class Checkpoint : public PiecewiseSource {
 public:
  // A folder of one step, or a directory of them: then the one that was saved last. Throws as
  // above, and where there is none.
  static Checkpoint open(const std::string& directory);
  // As open(FOLDER) and verify(); the errors say nothing of other checkpoints.
  static Checkpoint open_alone(const std::string& folder);
  void verify_alone() const;

  // The folder of the step.
  const std::string& path() const { return where(); }
  // Whether all files are there, with as many bytes as they should have: quick. Throws as above.
  void check_sizes() const;
  // Reads all files. Throws as above.
  void verify() const;
  // Reads one file. As verify_alone().
  void verify_file(int file) const;

 private:
  explicit Checkpoint(std::string path);
  // A file whose values may be read as far as their checksums were verified.
  struct File {
    SafetensorsFile stored;
    bool is_verified = false;                        // the whole file
    std::set<std::string, std::less<>> pieces = {};  // that were verified alone
  };

  // Errors of these say nothing of other checkpoints.
  File& opened_file(int file) const;
  const std::byte* verified(const StoredPiece& piece, const std::string& name) const;
  const std::byte* bytes_of(const StoredPiece& piece, const std::string& name, size_t first,
                            size_t count) const override;
  static bool is_whole(const std::string& path);
  static Error refusal(const std::string& path, const Error& error);

  mutable std::vector<std::optional<File>> files_;  // empty: not opened yet
};

}  // namespace tutti::training
