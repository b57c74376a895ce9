#include "training/hugging_face/export.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/random_token.h"
#include "base/text.h"
#include "training/checkpoint/files.h"
#include "training/checkpoint/safetensors.h"
#include "training/checkpoint/step_directory.h"
#include "training/hugging_face/architecture.h"
#include "training/hugging_face/directory.h"
#include "training/models/registry.h"

namespace tutti::training::hugging_face {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSlab = 1 << 18;  // elements that are processed at a time

struct ExportedTensor {
  TensorInfo info;        // name, shape and type in the file
  std::string parameter;  // name of the parameter in the checkpoint
  bool transposed = false;
};

using Shard = std::vector<ExportedTensor>;

uint64_t bytes_of(const TensorInfo& info) {
  return static_cast<uint64_t>(info.count()) * size_of(info.dtype);
}

const char* torch_name(DType type) {
  switch (type) {
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      throw Error(ErrorCode::invalid_argument, cat("a model cannot be exported as ", name(type)),
                  {.remedy = "use f32, bf16 or f16"});
  }
}

std::vector<Shard> shards_of(const Checkpoint& checkpoint, const Architecture& architecture,
                             const ExportOptions& options) {
  std::vector<Shard> shards(1);
  uint64_t bytes = 0;
  for (const TensorEntry& tensor : checkpoint.manifest().tensors) {
    std::string_view parameter = tensor.info.name;
    if (!parameter.starts_with(kModelPrefix)) continue;
    parameter.remove_prefix(kModelPrefix.size());
    ExportedTensor exported{{architecture.tensor_name(parameter), options.dtype, tensor.info.shape},
                            tensor.info.name,
                            tensor.info.shape.size() == 2 && architecture.is_transposed(parameter)};
    if (exported.transposed) std::swap(exported.info.shape[0], exported.info.shape[1]);
    const uint64_t more = bytes_of(exported.info);
    if (!shards.back().empty() && bytes + more > options.max_shard_size) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(exported));
  }
  return shards;
}

// Writes a transposed tensor. A row of the file's tensor is a column of the checkpoint's tensor.
// Processes as many rows at a time as fit into a slab.
void write_transposed(const Checkpoint& checkpoint, const ExportedTensor& tensor,
                      SafetensorsWriter& file) {
  const int64_t inputs = tensor.info.shape[0], outputs = tensor.info.shape[1];
  const int64_t together = std::max<int64_t>(1, kSlab / std::max<int64_t>(1, outputs));
  const size_t size = size_of(tensor.info.dtype);
  std::vector<std::byte> rows, piece;
  for (int64_t first = 0; first < inputs; first += together) {
    const int64_t count = std::min(together, inputs - first);
    rows.resize(static_cast<size_t>(count * outputs) * size);
    piece.resize(static_cast<size_t>(count) * size);
    for (int64_t output = 0; output < outputs; ++output) {
      checkpoint.read(tensor.parameter, output * inputs + first,
                      tensor_at(piece.data(), tensor.info.dtype, 1, count));
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(&rows[static_cast<size_t>(i * outputs + output) * size],
                    &piece[static_cast<size_t>(i) * size], size);
      }
    }
    file.write(rows);
  }
}

void write_shard(const Checkpoint& checkpoint, const Shard& shard, const std::string& path) {
  std::vector<TensorInfo> tensors;
  for (const ExportedTensor& tensor : shard) tensors.push_back(tensor.info);
  SafetensorsWriter file(path, tensors, {{"format", "pt"}});
  for (const ExportedTensor& tensor : shard) {
    if (tensor.transposed) {
      write_transposed(checkpoint, tensor, file);
    } else {
      copy_tensor(checkpoint, tensor.parameter, tensor.info.dtype, file);
    }
  }
  file.finish();
}

void write_text(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(text);
  file.finish();
}

std::string shard_name(size_t shard, size_t shards) {
  if (shards == 1) return kWeightsFile;
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", shard + 1, shards);
  return name;
}

void write_weights(const Checkpoint& checkpoint, const std::vector<Shard>& shards,
                   const std::string& folder) {
  Json map = Json::object();
  uint64_t bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    write_shard(checkpoint, shards[i], cat(folder, '/', name));
    for (const ExportedTensor& tensor : shards[i]) {
      map[tensor.info.name] = name;
      bytes += bytes_of(tensor.info);
    }
  }
  if (shards.size() == 1) return;
  const Json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}};
  write_text(cat(folder, '/', kIndexFile), index.dump(2) + "\n");
}

// Writes config.json. Keeps the fields of the imported config.json that do not describe the model
// itself, unless they belong to another architecture.
void write_config(const Json& model, const Architecture& architecture,
                  const std::string& companions, const std::string& folder, DType dtype) {
  Json config = Json::object();
  const std::string original = cat(companions, '/', kConfigFile);
  std::error_code error;
  if (fs::is_regular_file(original, error)) config = ConfigReader::open(original).json();
  const Json* const type = config.find("model_type");
  if (type != nullptr && *type != architecture.model_type) config = Json::object();
  config["architectures"] = Json::array({architecture.class_name});
  config["model_type"] = architecture.model_type;
  for (const char* field : {"bos_token_id", "eos_token_id"}) {
    if (!config.contains(field)) config[field] = Json();
  }
  config["torch_dtype"] = torch_name(dtype);
  config["dtype"] = torch_name(dtype);
  architecture.describe(model, config);
  write_text(cat(folder, '/', kConfigFile), config.dump(2) + "\n");
}

void copy_into(const std::string& from, const std::string& folder) {
  for (const std::string& name : companions_in(from)) {
    write_text(cat(folder, '/', name), read_text(cat(from, '/', name)));
  }
}

bool is_shard(const std::string& name) {
  size_t shard = 0, shards = 0;
  return std::sscanf(name.c_str(), "model-%zu-of-%zu.safetensors", &shard, &shards) == 2 &&
         name == shard_name(shard - 1, shards);
}

// Returns a file in the directory that an export does not write, if there is one.
std::optional<std::string> stranger_in(const std::string& directory) {
  const std::vector<std::string> companions = companions_in(directory);
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    const bool known = name == kConfigFile || name == kWeightsFile || name == kIndexFile ||
                       is_shard(name) || std::ranges::count(companions, name) > 0;
    if (!known || entry.is_directory()) return name;
  }
  return std::nullopt;
}

bool is_within(const fs::path& path, const fs::path& directory) {
  const auto differ = std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
  return differ.first == directory.end();
}

// Returns the directory of the run that contains the step, or the step's folder if no run does.
fs::path source_of(const Checkpoint& checkpoint) {
  const fs::path step = fs::weakly_canonical(without_slash(checkpoint.path()));
  return fs::exists(step.parent_path() / kLatestFile) ? step.parent_path() : step;
}

// Throws if the target contains the source or is inside it, or if the target has files that no
// export has written, because they would be lost.
void check_target(const std::string& target, const fs::path& source) {
  const fs::path canonical = fs::weakly_canonical(target);
  if (is_within(canonical, source) || is_within(source, canonical)) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("a model cannot be written to ", target, ": ",
            is_within(source, canonical) ? "it contains the run that the model comes from"
                                         : "it is inside the run that the model comes from"),
        {.remedy = "use a directory elsewhere"});
  }
  if (!fs::is_directory(target)) return;
  if (const std::optional<std::string> stranger = stranger_in(target)) {
    throw Error(ErrorCode::invalid_argument,
                cat(target, " contains a file that no export wrote: ", in_quotes(*stranger)),
                {.remedy = "use a new directory, or move the contents of this one"});
  }
}

// A temporary folder that replaces the directory once everything is on the disk.
class NewDirectory {
 public:
  NewDirectory(const std::string& path, bool overwrite, const fs::path& source)
      : overwrite_(overwrite) {
    fs::path target = fs::absolute(path).lexically_normal();
    if (target.filename().empty()) target = target.parent_path();
    target_ = target;
    std::error_code error;
    if (fs::exists(target_, error) &&
        (!fs::is_directory(target_, error) || (!overwrite && !fs::is_empty(target_, error)))) {
      throw Error(ErrorCode::invalid_argument, cat(path, " already has contents"),
                  {.remedy = "use a new directory, or --overwrite"});
    }
    check_target(target_, source);
    folder_ = target.parent_path() / cat('.', target.filename().string(), ".tmp-", random_token());
    fs::create_directories(folder_, error);
    if (error) {
      throw Error(ErrorCode::system, cat("cannot create the directory ", folder_),
                  {.cause = error.message()});
    }
  }
  ~NewDirectory() { remove_folder(folder_); }
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  const std::string& folder() const { return folder_; }
  // Renames the folder to the directory's name. An existing directory that is overwritten gets the
  // temporary name instead, and the destructor removes it.
  void publish() {
    sync_directory(folder_);
    const bool exchange = overwrite_ && fs::exists(target_);
    const int result = exchange ? ::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, target_.c_str(),
                                              RENAME_EXCHANGE)
                                : ::rename(folder_.c_str(), target_.c_str());
    if (result != 0) throw system_error(cat("cannot rename ", folder_, " to ", target_), errno);
    sync_directory(fs::path(target_).parent_path());
  }

 private:
  bool overwrite_;
  std::string target_;
  std::string folder_;
};

}  // namespace

void export_model(const Checkpoint& checkpoint, const std::string& companions,
                  const std::string& directory, const ExportOptions& options) {
  const Json model = completed_model(checkpoint.manifest().model);
  const Architecture& architecture = architecture_of_model(model);
  if (options.max_shard_size == 0) {
    throw Error(ErrorCode::invalid_argument, "a file cannot hold 0 bytes of tensors",
                {.where = "--max-shard-size", .remedy = "use a size such as 5G"});
  }
  NewDirectory target(directory, options.overwrite, source_of(checkpoint));
  write_config(model, architecture, companions, target.folder(), options.dtype);
  write_weights(checkpoint, shards_of(checkpoint, architecture, options), target.folder());
  copy_into(companions, target.folder());
  target.publish();
}

}  // namespace tutti::training::hugging_face
