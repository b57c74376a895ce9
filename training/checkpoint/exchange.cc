#include "training/checkpoint/exchange.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr std::string_view kTransformer = "transformer.";

// Returns true for files with Conv1D linear layers: one of these has width inputs and 3 width
// outputs.
bool has_conv1d(const SafetensorsFile& file) {
  return std::ranges::any_of(file.tensors(), [](const StoredTensor& tensor) {
    const std::vector<int64_t>& shape = tensor.info.shape;
    return tensor.info.name.ends_with("attn.c_attn.weight") && shape.size() == 2 &&
           shape[1] % 3 == 0 && shape[0] == shape[1] / 3;
  });
}

bool is_conv1d(const StoredTensor& tensor) {
  const std::string& name = tensor.info.name;
  return tensor.info.shape.size() == 2 &&
         (name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") ||
          name.ends_with("c_fc.weight"));
}

bool is_mask(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace

void read_transposed(const StoredTensor& stored, int64_t first, Tensor out) {
  const int64_t rows = stored.info.shape[1];
  const int64_t cols = stored.info.shape[0];
  const size_t size = size_of(stored.info.dtype);
  std::array<std::byte, 8 * 1024> block;
  const auto capacity = static_cast<int64_t>(block.size() / size);
  for (int64_t done = 0; done < out.size(); done += capacity) {
    const int64_t part = std::min(capacity, out.size() - done);
    for (int64_t i = 0; i < part; ++i) {
      const int64_t element = first + done + i;
      const int64_t from = element % cols * rows + element / cols;
      std::memcpy(block.data() + static_cast<size_t>(i) * size,
                  stored.bytes.data() + static_cast<size_t>(from) * size, size);
    }
    convert_elements(block.data(), stored.info.dtype, out.col_range(done, part));
  }
}

void export_safetensors(const Checkpoint& checkpoint, const std::string& path, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16) {
    throw Error(ErrorCode::invalid_argument, cat("a model cannot be exported as ", name(dtype)),
                {.remedy = "use f32, bf16 or f16"});
  }
  std::vector<TensorInfo> tensors;
  std::vector<std::string> sources;  // names of the tensors in the checkpoint
  for (const TensorEntry& tensor : checkpoint.manifest().tensors) {
    const std::string& name = tensor.info.name;
    const bool is_buffer = name.starts_with(kBufferPrefix);
    if (!is_buffer && !name.starts_with(kModelPrefix)) continue;
    sources.push_back(name);
    tensors.push_back({name.substr((is_buffer ? kBufferPrefix : kModelPrefix).size()),
                       is_buffer ? DType::f32 : dtype, tensor.info.shape});
  }
  const Json& model = checkpoint.manifest().model;
  const std::string fresh = path + ".tmp";
  SafetensorsWriter file(fresh, tensors,
                         {{"producer", "tutti"},
                          {"model", model.is_string() ? std::string(model) : model.dump()},
                          {"step", cat(checkpoint.manifest().step)}});
  for (size_t i = 0; i < tensors.size(); ++i) {
    copy_tensor(checkpoint, sources[i], tensors[i].dtype, file);
  }
  file.finish();
  if (std::rename(fresh.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    std::remove(fresh.c_str());
    throw system_error(cat("cannot rename ", fresh, " to ", path), reason);
  }
}

ImportedModel::ImportedModel(const std::string& path,
                             const std::map<std::string, std::string>& renamed)
    : file_(path) {
  const bool conv1d = has_conv1d(file_);
  std::set<std::string_view> used;
  for (const auto& [here, there] : renamed) {
    const StoredTensor* stored = file_.find(there);
    if (stored == nullptr) {
      throw Error(ErrorCode::invalid_argument, cat(path, " has no tensor ", in_quotes(there)),
                  {.where = cat("renamed to ", in_quotes(here))});
    }
    used.insert(there);
    add(here, *stored, conv1d && is_conv1d(*stored));
  }
  for (const StoredTensor& stored : file_.tensors()) {
    std::string_view name = stored.info.name;
    if (used.contains(name) || (conv1d && is_mask(name))) continue;
    if (conv1d && name.starts_with(kTransformer)) name.remove_prefix(kTransformer.size());
    add(std::string(name), stored, conv1d && is_conv1d(stored));
  }
}

void ImportedModel::add(const std::string& name, const StoredTensor& stored, bool transposed) {
  TensorInfo info = stored.info;
  info.name = cat(kModelPrefix, name);
  if (transposed) std::swap(info.shape[0], info.shape[1]);
  const std::string key = info.name;
  if (!entries_.try_emplace(key, Entry{std::move(info), &stored, transposed}).second) {
    throw Error(ErrorCode::invalid_argument,
                cat(file_.path(), " has two tensors that are renamed to ", in_quotes(name)),
                {.remedy = "rename one of them"});
  }
}

std::vector<std::string> ImportedModel::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const TensorInfo* ImportedModel::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second.info;
}

void ImportedModel::read(std::string_view name, int64_t first, Tensor out) const {
  const TensorInfo& info = checked_range(*this, file_.path(), name, first, out);
  const Entry& entry = entries_.find(name)->second;
  if (entry.transposed) {
    read_transposed(*entry.stored, first, out);
  } else {
    convert_elements(entry.stored->bytes.data() + static_cast<size_t>(first) * size_of(info.dtype),
                     info.dtype, out);
  }
}

}  // namespace tutti::training
