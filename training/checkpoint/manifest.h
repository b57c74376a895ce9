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

// Elements [first, first + count) of a slice of a tensor. They are stored in a file as a 1-D
// tensor, whose name piece_name() returns.
struct StoredPiece {
  int64_t first = 0;
  int64_t count = 0;
  int file = 0;  // index in Manifest::files
  // checksum of the piece's bytes, as Checksum::hex(); empty if an earlier version saved the piece
  std::string checksum;
  bool operator==(const StoredPiece&) const = default;
};
// Returns a piece's name: "model.x[0:64]", or for a slice that is not the whole tensor
// "model.x{0:2+4:5, 0:4}[0:12]".
std::string piece_name(std::string_view tensor, const Slice& slice, int64_t first, int64_t count);

struct StoredSlice {
  Slice slice;
  std::vector<StoredPiece> pieces;  // in ascending order; together they cover the slice
  bool operator==(const StoredSlice&) const = default;
};

struct TensorEntry {
  TensorInfo info;
  // together they cover the whole tensor; a single slice unless the tensor was sharded
  std::vector<StoredSlice> slices;
  bool operator==(const TensorEntry&) const = default;

  void add(const Slice& slice, const StoredPiece& piece);
  size_t pieces() const;
};

// The file that one rank wrote.
struct FileEntry {
  uint64_t bytes = 0;
  std::string checksum;  // checksum of the whole file, as Checksum::hex()
  // checksum of SafetensorsFile::header(); empty if an earlier version saved the file
  std::string header_checksum;
  bool operator==(const FileEntry&) const = default;
};
std::string rank_file_name(int rank, int world);

// Key in the state of an imported step, which no run has saved and which has no optimizer state.
// The value is the origin of the model.
inline constexpr const char* kImportedFrom = "imported";

struct Manifest {
  int64_t step = 0;
  std::string run;     // ID of the run that saved the step; empty in an earlier format
  FenceMark fence;     // the writer that saved the step; number 0 in an earlier format
  Json model = "";     // Model::configuration() of the saved model
  Json configuration;  // configuration of the run; empty in an earlier format
  Json state;          // state of the trainer; a JSON object
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;  // in alphabetical order

  int world() const { return static_cast<int>(files.size()); }
  std::string file_name(int file) const { return rank_file_name(file, world()); }
  uint64_t bytes() const;
};

// Sorts tensors and pieces. Throws Error(mismatch), naming the tensor, unless the tensor's slices
// cover it exactly once and the pieces of each slice cover the slice exactly once.
void arrange(Manifest& manifest);

// Converts the ranges of a slice's indices to JSON: a list of [begin, end] for each dimension.
Json to_json(const std::vector<Slice::Ranges>& ranges);
std::vector<Slice::Ranges> ranges_of(const Json& json);

// Converts the manifest to text whose first line contains the checksum of the other lines. Throws
// Error(invalid_argument) if JSON cannot represent the state, because it contains NaN, infinity or
// text that is not UTF-8.
std::string to_text(const Manifest& manifest);
// Parses the text of the file `path`. Throws an Error that names `path` and the cause, with the
// code unsupported for a newer format and invalid_argument otherwise.
Manifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace tutti::training
