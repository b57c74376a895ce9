// What a checkpoint holds: the contents of its file checkpoint.json.
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

// Elements [first, first + count) of a slice of a tensor lie in a file as the 1-D tensor
// piece_name().
struct StoredPiece {
  int64_t first = 0;
  int64_t count = 0;
  int file = 0;          // index in Manifest::files
  std::string checksum;  // of its bytes, as Checksum::hex(); empty: an earlier Tutti saved it
  bool operator==(const StoredPiece&) const = default;
};
// "model.x[0:64]"; of a slice that is not the whole "model.x{0:2+4:5, 0:4}[0:12]".
std::string piece_name(std::string_view tensor, const Slice& slice, int64_t first, int64_t count);

struct StoredSlice {
  Slice slice;
  std::vector<StoredPiece> pieces;  // ascending; together the slice
  bool operator==(const StoredSlice&) const = default;
};

struct TensorEntry {
  TensorInfo info;
  std::vector<StoredSlice> slices;  // together the whole tensor: itself, unless ranks had cut it
  bool operator==(const TensorEntry&) const = default;

  void add(const Slice& slice, const StoredPiece& piece);
  size_t pieces() const;
};

// One for each rank, in the order of ranks.
struct FileEntry {
  uint64_t bytes = 0;
  std::string checksum;         // of all its bytes, as Checksum::hex()
  std::string header_checksum;  // of SafetensorsFile::header(); empty: an earlier Tutti saved it
  bool operator==(const FileEntry&) const = default;
};
std::string rank_file_name(int rank, int world);

// In the state of a step that no run has saved, but that has a model from elsewhere: where it came
// from. There is no optimizer's state.
inline constexpr const char* kImportedFrom = "imported";

struct Manifest {
  int64_t step = 0;
  std::string run;     // the identity of the run that saved it; empty: an earlier format had none
  FenceMark fence;     // its writer's; number 0: an earlier format had none
  Json model = "";     // the tensors': Model::configuration()
  Json configuration;  // the run's; empty: an earlier format had none
  Json state;          // the trainer's own; an object
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;  // in alphabetical order

  int world() const { return static_cast<int>(files.size()); }
  std::string file_name(int file) const { return rank_file_name(file, world()); }
  uint64_t bytes() const;
};

// Sorts tensors and pieces. Throws Error(mismatch) that names the tensor, unless each one's slices,
// and each slice's pieces, are the whole of it, once.
void arrange(Manifest& manifest);

// Ranges of a slice's indices as JSON: by dimension, [begin, end].
Json to_json(const std::vector<Slice::Ranges>& ranges);
std::vector<Slice::Ranges> ranges_of(const Json& json);

// The text's first line has the checksum of all that follow. Throws Error(invalid_argument) where
// JSON cannot hold the state: NaN, infinity, text that is no UTF-8.
std::string to_text(const Manifest& manifest);
// Throws Error that names `path` and the cause: code unsupported for a newer format, else
// invalid_argument.
Manifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace tutti::training
