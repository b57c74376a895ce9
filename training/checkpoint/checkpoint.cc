#include "training/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/checkpoint/checksum.h"
#include "training/checkpoint/step_directory.h"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

Error no_checkpoint(const std::string& directory) {
  return Error(
      ErrorCode::invalid_argument, cat("no checkpoint found in ", directory),
      {.remedy =
           "use a run directory, which contains folders named step-N, or one of its step folders"});
}

// Returns the name of a piece that the manifest and the header of its file describe differently, or
// "" if there is none.
std::string disagreement(const Manifest& manifest, int file, const SafetensorsFile& stored) {
  for (const TensorEntry& tensor : manifest.tensors) {
    for (const auto& [slice, pieces] : tensor.slices) {
      for (const StoredPiece& piece : pieces) {
        if (piece.file != file) continue;
        const std::string name = piece_name(tensor.info.name, slice, piece.first, piece.count);
        const StoredTensor* found = stored.find(name);
        if (found == nullptr || found->info.dtype != tensor.info.dtype ||
            found->info.count() != piece.count) {
          return name;
        }
      }
    }
  }
  return "";
}

void require_size(const std::string& path, uint64_t size, uint64_t expected) {
  if (size == expected) return;
  throw Error(ErrorCode::invalid_argument, cat(path, " has ", size, " bytes instead of ", expected,
                                               size < expected ? ": it is truncated" : ""));
}

void require_checksum(std::span<const std::byte> bytes, const std::string& expected,
                      const std::string& path) {
  if (checksum_of(bytes) == expected) return;
  throw Error(ErrorCode::invalid_argument,
              cat(path, " is damaged: its checksum does not match its contents"));
}

Manifest manifest_in(const std::string& folder) {
  const std::string file = cat(folder, '/', kManifestFile);
  return parse_manifest(read_text(file), file);
}

}  // namespace

Checkpoint::Checkpoint(std::string path)
    : PiecewiseSource(path, manifest_in(path)), files_(manifest().files.size()) {}

Checkpoint Checkpoint::open(const std::string& directory) {
  fs::path path(without_slash(directory));
  if (!is_step_folder(path)) {
    const std::optional<int64_t> step = latest_step(path);
    if (!step) throw no_checkpoint(directory);
    path /= step_name(*step);
  }
  try {
    return Checkpoint(path);
  } catch (const Error& error) {
    throw refusal(path, error);
  }
}

Checkpoint Checkpoint::open_alone(const std::string& folder) { return Checkpoint(folder); }

Checkpoint Checkpoint::open_verified(const std::string& folder) {
  Checkpoint checkpoint = open(folder);
  checkpoint.is_verified_ = true;
  return checkpoint;
}

const std::byte* Checkpoint::bytes_of(const StoredPiece& piece, const std::string& name,
                                      size_t first, size_t) const {
  try {
    return verified(piece, name) + first;
  } catch (const Error& error) {
    throw refusal(path(), error);
  }
}

void Checkpoint::check_sizes() const {
  try {
    for (int i = 0; i < manifest().world(); ++i) {
      const std::string file = cat(path(), '/', manifest().file_name(i));
      std::error_code error;
      const uint64_t size = fs::file_size(file, error);
      if (error) throw system_error(cat("cannot read ", file), error.value());
      require_size(file, size, manifest().files[static_cast<size_t>(i)].bytes);
    }
  } catch (const Error& error) {
    throw refusal(path(), error);
  }
}

void Checkpoint::verify() const {
  try {
    verify_alone();
  } catch (const Error& error) {
    throw refusal(path(), error);
  }
}

void Checkpoint::verify_alone() const {
  for (int file = 0; file < manifest().world(); ++file) verify_file(file);
}

// Opens a file; throws unless its size and header match the manifest.
Checkpoint::File& Checkpoint::opened_file(int index) const {
  std::optional<File>& file = files_[static_cast<size_t>(index)];
  if (file) return *file;
  const FileEntry& expected = manifest().files[static_cast<size_t>(index)];
  MappedFile mapped(cat(path(), '/', manifest().file_name(index)));
  const std::string path = mapped.path();
  require_size(path, mapped.bytes().size(), expected.bytes);
  const bool is_early = expected.header_checksum.empty();
  if (is_early && !is_verified_) require_checksum(mapped.bytes(), expected.checksum, path);
  SafetensorsFile stored(std::move(mapped));
  if (!is_early) require_checksum(stored.header(), expected.header_checksum, path);
  const std::string piece = disagreement(manifest(), index, stored);
  if (!piece.empty()) {
    throw Error(ErrorCode::invalid_argument,
                cat(path, " and ", kManifestFile, " disagree about the piece ", in_quotes(piece)));
  }
  return file.emplace(File{.stored = std::move(stored), .is_verified = is_early || is_verified_});
}

void Checkpoint::verify_file(int index) const {
  File& file = opened_file(index);
  if (file.is_verified) return;
  require_checksum(file.stored.bytes(), manifest().files[static_cast<size_t>(index)].checksum,
                   file.stored.path());
  file.is_verified = true;
}

const std::byte* Checkpoint::verified(const StoredPiece& piece, const std::string& name) const {
  if (piece.checksum.empty()) verify_file(piece.file);
  File& file = opened_file(piece.file);
  const std::span<const std::byte> bytes = file.stored.find(name)->bytes;
  if (!file.is_verified && !file.pieces.contains(name)) {
    require_checksum(bytes, piece.checksum, file.stored.path());
    file.pieces.insert(name);
  }
  return bytes.data();
}

bool Checkpoint::is_whole(const std::string& path) {
  try {
    Checkpoint(path).verify_alone();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Adds to an error, as the remedy, the newest complete checkpoint beside this one. Prefers an older
// one, because a later one belongs to an abandoned run.
Error Checkpoint::refusal(const std::string& path, const Error& error) {
  if (error.code() == ErrorCode::unsupported) return error;
  const fs::path folder(path);
  const fs::path parent = folder.has_parent_path() ? folder.parent_path() : ".";
  const std::optional<int64_t> own = parse_step_name(folder.filename().string());
  std::vector<int64_t> steps = own ? steps_in(parent) : std::vector<int64_t>();
  std::erase(steps, own.value_or(-1));
  std::ranges::stable_partition(steps, [&](int64_t step) { return step > own.value_or(-1); });
  std::string remedy = "no other checkpoint here is complete; use a copy, or start a new run";
  for (; !steps.empty(); steps.pop_back()) {
    const std::string other = parent / step_name(steps.back());
    if (!is_whole(other)) continue;
    remedy = cat("use ", other, ", which is complete");
    break;
  }
  return Error(error.code(), error.what(), {.remedy = remedy, .rank = error.rank()});
}

}  // namespace tutti::training
