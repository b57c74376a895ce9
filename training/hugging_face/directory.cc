#include "training/hugging_face/directory.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/file_text.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/checkpoint/exchange.h"
#include "training/checkpoint/files.h"
#include "training/checkpoint/initial.h"
#include "training/models/registry.h"

namespace tutti::training::hugging_face {
namespace {

constexpr int64_t kMostContext = 4096;  // default limit of the context

constexpr std::string_view kCompanions[] = {
    "generation_config.json",  "tokenizer.json",    "tokenizer_config.json",
    "tokenizer.model",         "vocab.json",        "merges.txt",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "chat_template.json"};

std::string in_directory(const std::string& path, std::string_view name) {
  return cat(path, '/', name);
}

// Returns true if the name can be that of a visible file directly in the directory, so that it does
// not lead elsewhere.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what,
              {.where = where, .remedy = "download or write the directory again"});
}

// Throws if the directory has weights only in other formats.
void refuse_other_weights(const std::string& directory) {
  for (const char* const name :
       {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "model.pt",
        "tf_model.h5", "flax_model.msgpack", "model.gguf"}) {
    if (!is_regular_file(in_directory(directory, name))) continue;
    throw Error(ErrorCode::unsupported,
                cat("the directory has its weights only in ", name, ", not in ", kWeightsFile),
                {.where = directory,
                 .cause = "pickle files can execute code when they are loaded",
                 .remedy = cat("convert it: python -c \"from transformers import "
                               "AutoModelForCausalLM as M; M.from_pretrained('",
                               directory, "').save_pretrained('", directory, "-safetensors')\"")});
  }
}

// Reads the index's weight_map. Returns the tensor names of each shard's file.
std::map<std::string, std::set<std::string>> read_index(const std::string& path) {
  const ConfigReader index = ConfigReader::open(path);
  std::map<std::string, std::set<std::string>> files;
  const ConfigReader map = index.object("weight_map");
  for (const auto& [tensor, file] : map.json().items()) {
    if (!file.is_string() || !is_plain_name(file)) {
      refuse(path, cat("the index assigns tensor ", in_quotes(tensor), " to ", file.words(),
                       ", which is not a file of this directory"));
    }
    files[file].insert(tensor);
  }
  if (files.empty()) refuse(path, "the index names no tensor");
  return files;
}

void check_shard(const SafetensorsFile& shard, const std::set<std::string>& wanted) {
  for (const StoredTensor& tensor : shard.tensors()) {
    if (wanted.contains(tensor.info.name)) continue;
    refuse(shard.path(), cat("the file has the tensor ", in_quotes(tensor.info.name),
                             ", which the index does not assign to it"));
  }
  for (const std::string& name : wanted) {
    if (shard.find(name) == nullptr) {
      refuse(shard.path(),
             cat("the file lacks the tensor ", in_quotes(name), " that the index assigns to it"));
    }
  }
}

bool is_supported(DType type) { return is_float(type) && size_of(type) >= 2; }

// Returns make(). Adds the file's name to its errors.
template <typename Make>
auto made_for(const std::string& file, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), {.where = file});
  }
}

// Builds the model with the smallest context. Names and shapes do not depend on the context, but
// memory for positions does.
std::unique_ptr<Model> made_for_its_parameters(const Json& configuration, const std::string& file) {
  Json small = configuration;
  small["context"] = 1;
  return made_for(file, [&] { return make_model(small); });
}

}  // namespace

std::vector<std::string> companions_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const std::string_view name : kCompanions) {
    if (is_regular_file(in_directory(directory, name))) names.emplace_back(name);
  }
  return names;
}

bool is_model_directory(const std::string& path) {
  return is_regular_file(in_directory(path, kConfigFile));
}

Json read_model(const ConfigReader& config) {
  const Architecture& architecture = architecture_of(config);
  Json model = architecture.model_of(config);
  model["kind"] = architecture.kind;
  // Limits the context, because many models support more than memory allows.
  model["context"] = std::min(model.at("max_context").get<int64_t>(), kMostContext);
  return made_for(config.path(), [&] { return completed_model(model); });
}

Directory::Directory(const std::string& path) : path_(path) {
  const ConfigReader config = ConfigReader::open(in_directory(path, kConfigFile));
  model_ = read_model(config);
  open_files();
  match_parameters(architecture_of(config));
}

void Directory::open_files() {
  const std::string index = in_directory(path_, kIndexFile);
  const std::string one = in_directory(path_, kWeightsFile);
  // As in transformers, a single file takes precedence: an index beside it is a remnant of earlier
  // files.
  if (is_regular_file(one) || !is_regular_file(index)) {
    if (!is_regular_file(one)) refuse_other_weights(path_);
    files_.emplace_back(one);
    return;
  }
  const auto shards = read_index(index);
  for (const auto& [name, tensors] : shards) {
    if (!is_regular_file(in_directory(path_, name))) {
      refuse(index, cat("the index names the file ", in_quotes(name), ", which does not exist"));
    }
  }
  for (const auto& [name, tensors] : shards) {
    files_.emplace_back(in_directory(path_, name));
    check_shard(files_.back(), tensors);
  }
}

void Directory::match_parameters(const Architecture& architecture) {
  std::map<std::string, const StoredTensor*, std::less<>> stored;
  std::vector<std::string> missing, misshapen, surplus;
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) {
      const std::string_view name = architecture.parameter_name(tensor.info.name);
      if (architecture.is_constant(name)) continue;
      if (!stored.emplace(name, &tensor).second) surplus.push_back(tensor.info.name);
    }
  }
  const std::unique_ptr<Model> model =
      made_for_its_parameters(model_, in_directory(path_, kConfigFile));
  for (const ParameterSpec& spec : model->parameters().specs()) {
    const auto found = stored.find(spec.name);
    if (found == stored.end()) {
      missing.push_back(architecture.tensor_name(spec.name));
      continue;
    }
    const StoredTensor& tensor = *found->second;
    const bool transposed = spec.shape.size() == 2 && architecture.is_transposed(spec.name);
    std::vector<int64_t> wanted = spec.shape;
    if (transposed) std::swap(wanted[0], wanted[1]);
    if (tensor.info.shape != wanted || !is_supported(tensor.info.dtype)) {
      misshapen.push_back(cat(printable(tensor.info.name), " (", name(tensor.info.dtype), ", ",
                              shape_text(tensor.info.shape), ", not ", shape_text(wanted), ")"));
    }
    const std::string own = cat(kModelPrefix, spec.name);
    entries_[own] = {{own, tensor.info.dtype, spec.shape}, &tensor, transposed};
    stored.erase(found);
  }
  for (const auto& [name, tensor] : stored) {
    if (name == kOutputLayer && repeats(*tensor, cat(kModelPrefix, architecture.embedding)))
      continue;
    surplus.push_back(tensor->info.name);
  }
  std::string problems;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) problems += cat(problems.empty() ? "" : "; ", what, some_of(names));
  };
  add("missing: ", missing);
  add("wrong shape or type: ", misshapen);
  add("surplus: ", surplus);
  if (problems.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              cat("the tensors in ", path_, " do not match the model that is described in its ",
                  kConfigFile),
              {.where = path_, .cause = problems});
}

// Returns true if the output layer duplicates a tied embedding, as it does in some files.
bool Directory::repeats(const StoredTensor& output, const std::string& embedding) const {
  const auto found = entries_.find(embedding);
  if (found == entries_.end()) return false;
  const StoredTensor& other = *found->second.stored;
  return other.info.dtype == output.info.dtype && other.info.shape == output.info.shape &&
         std::memcmp(other.bytes.data(), output.bytes.data(), output.bytes.size()) == 0;
}

std::vector<std::string> Directory::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const TensorInfo* Directory::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second.info;
}

void Directory::read(std::string_view name, int64_t first, Tensor out) const {
  const TensorInfo& info = checked_range(*this, path_, name, first, out);
  const Entry& entry = entries_.find(name)->second;
  if (entry.transposed) {
    read_transposed(*entry.stored, first, out);
  } else {
    convert_elements(entry.stored->bytes.data() + static_cast<size_t>(first) * size_of(info.dtype),
                     info.dtype, out);
  }
}

}  // namespace tutti::training::hugging_face
