// Description of a checkpoint: the contents of its file checkpoint.json.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/checkpoint/safetensors.h"
#include "training/checkpoint/writer.h"
#include "training/core/placement.h"

namespace tutti::training {

inline constexpr const char* kManifestFile = "checkpoint.json";

// Elements [first, first + count) of a slice of a tensor, stored in a file as the 1-D tensor
// piece_name().
struct StoredPiece {
  int64_t first = 0;
  int64_t count = 0;
  int file = 0;          // index in Manifest::files
  std::string checksum;  // of its bytes, as Checksum::hex(); empty: an earlier version saved it
  bool operator==(const StoredPiece&) const = default;
};
// "model.x[0:64]"; for a slice that is not the whole tensor "model.x{0:2+4:5, 0:4}[0:12]".
std::string piece_name(std::string_view tensor, const Slice& slice, int64_t first, int64_t count);

struct StoredSlice {
  Slice slice;
  std::vector<StoredPiece> pieces;  // ascending; together the slice
  bool operator==(const StoredSlice&) const = default;
};

struct TensorEntry {
  TensorInfo info;
  std::vector<StoredSlice> slices;  // together the whole tensor: one slice, unless ranks had cut it
  bool operator==(const TensorEntry&) const = default;

  void add(const Slice& slice, const StoredPiece& piece);
  size_t pieces() const;
};

// A rank's file; in the order of ranks.
struct FileEntry {
  uint64_t bytes = 0;
  std::string checksum;         // of the whole file, as Checksum::hex()
  std::string header_checksum;  // of SafetensorsFile::header(); empty: an earlier version saved it
  bool operator==(const FileEntry&) const = default;
};
std::string rank_file_name(int rank, int world);

// Key in the state of a step without optimizer state that was imported, not saved by a run. Its
// value is the origin of the model.
inline constexpr const char* kImportedFrom = "imported";

struct Manifest {
  int64_t step = 0;
  std::string run;     // identity of the run that saved it; empty in an earlier format
  FenceMark fence;     // of its writer; number 0 in an earlier format
  Json model = "";     // of the tensors: Model::configuration()
  Json configuration;  // of the run; empty in an earlier format
  Json state;          // of the trainer; an object
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;  // in alphabetical order

  int world() const { return static_cast<int>(files.size()); }
  std::string file_name(int file) const { return rank_file_name(file, world()); }
  uint64_t bytes() const;
};

// Sorts tensors and pieces. Throws Error(mismatch), naming the tensor, unless its slices cover it
// exactly once, and the pieces of each slice cover the slice exactly once.
void arrange(Manifest& manifest);

// Ranges of a slice's indices as JSON: by dimension, [begin, end].
Json to_json(const std::vector<Slice::Ranges>& ranges);
std::vector<Slice::Ranges> ranges_of(const Json& json);

// The first line of the text has the checksum of the other lines. Throws Error(invalid_argument) if
// JSON cannot represent the state: NaN, infinity, text that is not UTF-8.
std::string to_text(const Manifest& manifest);
// Throws Error that names `path` and the cause: code unsupported for a newer format, otherwise
// invalid_argument.
Manifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace tutti::training
