#include "training/checkpoint/manifest.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/checkpoint/checksum.h"

namespace tutti::training {
namespace {

constexpr const char* kFormat = "tutti-checkpoint";
// Version 1 had no slices; checkpoints without slices are still written as version 1.
constexpr int kOldest = 1;
constexpr int kVersion = 2;
constexpr const char* kChecksum = "xxh3_64";
constexpr const char* kHeaderChecksum = "header_xxh3_64";

// Returns the first line of a manifest, such as {"xxh3_64": "0123456789abcdef", which contains the
// checksum of the other lines.
std::string first_line(std::string_view rest) {
  return cat("{\"", kChecksum, "\": \"", checksum_of(std::as_bytes(std::span(rest))), "\",\n");
}

bool is_cut(const TensorEntry& tensor) {
  return std::ranges::any_of(tensor.slices,
                             [](const StoredSlice& stored) { return !stored.slice.is_whole(); });
}

Json to_json(const std::vector<StoredPiece>& pieces) {
  Json list = Json::array();
  for (const StoredPiece& piece : pieces) {
    Json entry = {piece.first, piece.count, piece.file};
    if (!piece.checksum.empty()) entry.push_back(piece.checksum);
    list.push_back(std::move(entry));
  }
  return list;
}

Json to_json(const TensorEntry& tensor) {
  Json entry = {{"dtype", safetensors_name(tensor.info.dtype)}, {"shape", tensor.info.shape}};
  if (!is_cut(tensor)) {
    entry["pieces"] = tensor.slices.empty() ? Json::array() : to_json(tensor.slices[0].pieces);
    return entry;
  }
  for (const StoredSlice& stored : tensor.slices) {
    entry["slices"].push_back(
        {{"ranges", to_json(stored.slice.ranges())}, {"pieces", to_json(stored.pieces)}});
  }
  return entry;
}

void add_pieces(TensorEntry& tensor, const Slice& slice, const Json& pieces) {
  for (const Json& piece : pieces) {
    tensor.add(slice,
               {piece.at(0).get<int64_t>(), piece.at(1).get<int64_t>(), piece.at(2).get<int>(),
                piece.size() > 3 ? piece.at(3).get<std::string>() : std::string()});
  }
}

// Parses a tensor's entry. Throws Error for an invalid form; arrange() checks the numbers.
TensorEntry tensor_of(const std::string& name, const Json& entry) {
  const std::optional<DType> type = safetensors_type(entry.at("dtype").get<std::string>());
  if (!type) {
    throw Error(ErrorCode::invalid_argument,
                cat("tensor ", in_quotes(name), " has an unknown type"));
  }
  TensorEntry tensor{{name, *type, entry.at("shape").get<std::vector<int64_t>>()}, {}};
  if (!count_of(tensor.info.shape)) {
    throw Error(ErrorCode::invalid_argument,
                cat("tensor ", in_quotes(name), " has an invalid shape"));
  }
  if (entry.contains("pieces")) {
    add_pieces(tensor, Slice(tensor.info.shape), entry.at("pieces"));
    return tensor;
  }
  for (const Json& slice : entry.at("slices")) {
    add_pieces(tensor, Slice(tensor.info.shape, ranges_of(slice.at("ranges"))), slice.at("pieces"));
  }
  return tensor;
}

Manifest manifest_of(const Json& root) {
  Manifest manifest;
  manifest.step = root.at("step").get<int64_t>();
  manifest.model = root.at("model");
  if (!manifest.model.is_object() && !manifest.model.is_string()) {
    throw Error(ErrorCode::invalid_argument, "the model is neither an object nor a string");
  }
  manifest.state = root.at("state");
  manifest.run = root.value("run", std::string());
  if (const Json* const mark = root.find("fence")) manifest.fence = fence_mark_of(*mark);
  if (const Json* const all = root.find("configuration")) manifest.configuration = *all;
  for (const Json& file : root.at("files")) {
    manifest.files.push_back({file.at("bytes").get<uint64_t>(),
                              file.at(kChecksum).get<std::string>(),
                              file.value(kHeaderChecksum, std::string())});
  }
  for (const auto& [name, entry] : root.at("tensors").items()) {
    manifest.tensors.push_back(tensor_of(name, entry));
  }
  return manifest;
}

// Sorts the pieces of a slice. Returns "", or the fault if the pieces do not cover the slice
// exactly once.
std::string arrange_pieces(StoredSlice& stored, int world) {
  const int64_t count = stored.slice.count();
  std::ranges::sort(stored.pieces, {}, &StoredPiece::first);
  int64_t end = 0;
  for (const StoredPiece& piece : stored.pieces) {
    if (piece.file < 0 || piece.file >= world || piece.count < 1) return "has an invalid piece";
    if (piece.first > end) return cat("lacks elements [", end, ", ", piece.first, ")");
    if (piece.first < end) return cat("has element ", piece.first, " twice");
    if (piece.count > count - end) return cat("has pieces beyond its ", count, " elements");
    end += piece.count;
  }
  return end < count ? cat("lacks elements [", end, ", ", count, ")") : "";
}

// Sorts the pieces of each slice of a tensor. Returns "", or the fault if the slices do not cover
// the tensor exactly once. Disjoint slices cover it if their numbers of elements add up to its
// size.
std::string arrange_slices(TensorEntry& tensor, int world) {
  std::vector<StoredSlice>& slices = tensor.slices;
  if (std::ssize(slices) > world) return "has more slices than there are files";
  int64_t missing = tensor.info.count();
  for (size_t i = 0; i < slices.size(); ++i) {
    const std::string problem = arrange_pieces(slices[i], world);
    const std::string text = to_text(slices[i].slice);
    if (!problem.empty()) {
      return slices[i].slice.is_whole() ? problem : cat(problem, " of its slice ", text);
    }
    for (size_t before = 0; before < i; ++before) {
      if (!slices[before].slice.overlaps(slices[i].slice)) continue;
      return cat("has elements both in ", to_text(slices[before].slice), " and in ", text);
    }
    missing -= slices[i].slice.count();
  }
  if (missing == 0) return "";
  return slices.empty() ? cat("lacks elements [0, ", missing, ")")
                        : cat("lacks ", missing, " elements: its slices do not cover the tensor");
}

}  // namespace

std::string piece_name(std::string_view tensor, const Slice& slice, int64_t first, int64_t count) {
  const std::string of = slice.is_whole() ? "" : cat('{', to_text(slice), '}');
  return cat(tensor, of, '[', first, ':', first + count, ']');
}

void TensorEntry::add(const Slice& slice, const StoredPiece& piece) {
  const auto found = std::ranges::find(slices, slice, &StoredSlice::slice);
  StoredSlice& stored =
      found == slices.end() ? slices.emplace_back(StoredSlice{slice, {}}) : *found;
  stored.pieces.push_back(piece);
}

size_t TensorEntry::pieces() const {
  size_t sum = 0;
  for (const StoredSlice& stored : slices) sum += stored.pieces.size();
  return sum;
}

Json to_json(const std::vector<Slice::Ranges>& ranges) {
  Json dimensions = Json::array();
  for (const Slice::Ranges& dimension : ranges) {
    Json list = Json::array();
    for (const Slice::Range& range : dimension) list.push_back({range.begin, range.end});
    dimensions.push_back(std::move(list));
  }
  return dimensions;
}

std::vector<Slice::Ranges> ranges_of(const Json& json) {
  std::vector<Slice::Ranges> ranges;
  for (const Json& dimension : json) {
    Slice::Ranges& list = ranges.emplace_back();
    for (const Json& range : dimension) {
      list.push_back({range.at(0).get<int64_t>(), range.at(1).get<int64_t>()});
    }
  }
  return ranges;
}

std::string rank_file_name(int rank, int world) {
  char name[64];
  std::snprintf(name, sizeof name, "rank-%04d-of-%04d.safetensors", rank, world);
  return name;
}

uint64_t Manifest::bytes() const {
  uint64_t sum = 0;
  for (const FileEntry& file : files) sum += file.bytes;
  return sum;
}

void arrange(Manifest& manifest) {
  std::ranges::sort(manifest.tensors, {}, [](const TensorEntry& tensor) -> const std::string& {
    return tensor.info.name;
  });
  for (TensorEntry& tensor : manifest.tensors) {
    const std::string problem = arrange_slices(tensor, manifest.world());
    if (problem.empty()) continue;
    throw Error(ErrorCode::mismatch, cat("tensor ", in_quotes(tensor.info.name), ' ', problem),
                {.cause = "the ranks disagree about which rank has which part"});
  }
}

std::string to_text(const Manifest& manifest) {
  const int version = std::ranges::any_of(manifest.tensors, is_cut) ? kVersion : kOldest;
  Json root = {{"format", kFormat},        {"version", version},      {"step", manifest.step},
               {"model", manifest.model},  {"state", manifest.state}, {"files", Json::array()},
               {"tensors", Json::object()}};
  if (!manifest.run.empty()) root["run"] = manifest.run;
  if (manifest.fence.number != 0) root["fence"] = to_json(manifest.fence);
  if (!manifest.configuration.empty()) root["configuration"] = manifest.configuration;
  for (int i = 0; i < manifest.world(); ++i) {
    const FileEntry& file = manifest.files[static_cast<size_t>(i)];
    Json entry = {
        {"name", manifest.file_name(i)}, {"bytes", file.bytes}, {kChecksum, file.checksum}};
    if (!file.header_checksum.empty()) entry[kHeaderChecksum] = file.header_checksum;
    root["files"].push_back(std::move(entry));
  }
  for (const TensorEntry& tensor : manifest.tensors) {
    root["tensors"][tensor.info.name] = to_json(tensor);
  }
  std::string problem = "NaN or infinity";
  try {
    std::string rest = root.dump(1).substr(1) + "\n";  // without the {
    if (manifest.state.is_object() && Json::parse("{" + rest) == root) {
      return first_line(rest) + rest;
    }
  } catch (const Error& error) {  // thrown by dump() or parse()
    problem = error.what();
  }
  throw Error(ErrorCode::invalid_argument,
              cat("the state of step ", manifest.step, " cannot be written as JSON: ", problem));
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const auto refuse = [&](std::string_view cause, ErrorCode code = ErrorCode::invalid_argument) {
    return Error(code, cat(path, " is not a valid description of a checkpoint: ", cause));
  };
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view rest = text.substr(std::min(end + 1, text.size()));
  if (text.substr(0, end + 1) != first_line(rest)) {
    throw refuse(
        "the file's checksum does not match its contents, so the file is damaged or truncated");
  }
  try {
    const Json root = Json::parse(text);
    if (root.at("format") != kFormat) {
      throw Error(ErrorCode::invalid_argument, "the file has an unknown format");
    }
    const int version = root.at("version").get<int>();
    if (version < kOldest || version > kVersion) {
      throw refuse(cat("the file has version ", version,
                       " of the format; this version of Tutti reads ", kOldest, " to ", kVersion),
                   ErrorCode::unsupported);
    }
    Manifest manifest = manifest_of(root);
    arrange(manifest);
    return manifest;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) throw;
    throw refuse(error.what());
  }
}

}  // namespace tutti::training
