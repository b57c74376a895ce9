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
constexpr int kVersion = 1;
constexpr const char* kChecksum = "xxh3_64";

// {"xxh3_64": "0123456789abcdef",
std::string first_line(std::string_view rest) {
  return cat("{\"", kChecksum, "\": \"", checksum_of(std::as_bytes(std::span(rest))), "\",\n");
}

Json to_json(const TensorEntry& tensor) {
  Json pieces = Json::array();
  for (const StoredPiece& piece : tensor.pieces) {
    pieces.push_back({piece.first, piece.count, piece.file});
  }
  return {{"dtype", safetensors_name(tensor.info.dtype)},
          {"shape", tensor.info.shape},
          {"pieces", std::move(pieces)}};
}

// Throws Error for what has another form; arrange() judges the numbers.
TensorEntry tensor_of(const std::string& name, const Json& entry) {
  const std::optional<DType> type = safetensors_type(entry.at("dtype").get<std::string>());
  if (!type) {
    throw Error(ErrorCode::invalid_argument,
                cat("tensor ", in_quotes(name), " has an unknown type"));
  }
  TensorEntry tensor{{name, *type, entry.at("shape").get<std::vector<int64_t>>()}, {}};
  for (const Json& piece : entry.at("pieces")) {
    tensor.pieces.push_back(
        {piece.at(0).get<int64_t>(), piece.at(1).get<int64_t>(), piece.at(2).get<int>()});
  }
  return tensor;
}

Manifest manifest_of(const Json& root) {
  Manifest manifest;
  manifest.step = root.at("step").get<int64_t>();
  manifest.model = root.at("model");
  if (!manifest.model.is_object() && !manifest.model.is_string()) {
    throw Error(ErrorCode::invalid_argument, "its model is neither an object nor a text");
  }
  manifest.state = root.at("state");
  manifest.run = root.value("run", std::string());
  manifest.configuration = root.value("configuration", Configuration());
  for (const Json& file : root.at("files")) {
    manifest.files.push_back(
        {file.at("bytes").get<uint64_t>(), file.at(kChecksum).get<std::string>()});
  }
  for (const auto& [name, entry] : root.at("tensors").items()) {
    manifest.tensors.push_back(tensor_of(name, entry));
  }
  return manifest;
}

// Sorts; returns what is wrong, or nothing.
std::string arrange_pieces(TensorEntry& tensor, int world) {
  const std::optional<int64_t> count = count_of(tensor.info.shape);
  if (!count) return "has an impossible shape";
  std::ranges::sort(tensor.pieces, {}, &StoredPiece::first);
  int64_t end = 0;
  for (const StoredPiece& piece : tensor.pieces) {
    if (piece.file < 0 || piece.file >= world || piece.count < 1) return "has an impossible piece";
    if (piece.first > end) return cat("lacks elements [", end, ", ", piece.first, ")");
    if (piece.first < end) return cat("has element ", piece.first, " twice");
    if (piece.count > *count - end) return cat("has pieces beyond its ", *count, " elements");
    end += piece.count;
  }
  return end < *count ? cat("lacks elements [", end, ", ", *count, ")") : "";
}

}  // namespace

std::string piece_name(std::string_view tensor, int64_t first, int64_t count) {
  return cat(tensor, '[', first, ':', first + count, ']');
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
    const std::string problem = arrange_pieces(tensor, manifest.world());
    if (problem.empty()) continue;
    throw Error(ErrorCode::mismatch, cat("tensor ", in_quotes(tensor.info.name), ' ', problem),
                {.cause = "the ranks do not agree on who has which part"});
  }
}

std::string to_text(const Manifest& manifest) {
  Json root = {{"format", kFormat},        {"version", kVersion},     {"step", manifest.step},
               {"model", manifest.model},  {"state", manifest.state}, {"files", Json::array()},
               {"tensors", Json::object()}};
  if (!manifest.run.empty()) root["run"] = manifest.run;
  if (!manifest.configuration.empty()) root["configuration"] = manifest.configuration;
  for (int i = 0; i < manifest.world(); ++i) {
    const FileEntry& file = manifest.files[static_cast<size_t>(i)];
    root["files"].push_back(
        {{"name", manifest.file_name(i)}, {"bytes", file.bytes}, {kChecksum, file.checksum}});
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
  } catch (const Error& error) {  // of either function
    problem = error.what();
  }
  throw Error(ErrorCode::invalid_argument, cat("the state of step ", manifest.step,
                                               " is nothing that JSON can hold: ", problem));
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const auto refuse = [&](std::string_view cause, ErrorCode code = ErrorCode::invalid_argument) {
    return Error(code, cat(path, " is no good description of a checkpoint: ", cause));
  };
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view rest = text.substr(std::min(end + 1, text.size()));
  if (text.substr(0, end + 1) != first_line(rest)) {
    throw refuse("its checksum does not fit what it says, so it is damaged or was cut off");
  }
  try {
    const Json root = Json::parse(text);
    if (root.at("format") != kFormat) {
      throw Error(ErrorCode::invalid_argument, "it has another format");
    }
    if (const int version = root.at("version").get<int>(); version != kVersion) {
      throw refuse(cat("it has version ", version, " of the format; this Tutti reads ", kVersion),
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
