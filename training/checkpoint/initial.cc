#include "training/checkpoint/initial.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/checkpoint/tensor_source.h"

namespace tutti::training {
namespace {

constexpr const char* kPrefix = "model.";
constexpr const char* kHead = "model.lm_head.weight";
constexpr const char* kEmbedding = "model.wte.weight";
constexpr int64_t kSlab = 1 << 16;  // elements that are read at a time

std::vector<float> slab_of(const TensorSource& source, const std::string& name, int64_t first) {
  std::vector<float> values(
      static_cast<size_t>(std::min(kSlab, source.find(name)->count() - first)));
  source.read(name, first, tensor_at(values.data(), DType::f32, 1, std::ssize(values)));
  return values;
}

bool is_finite(const TensorSource& source, const std::string& name) {
  for (int64_t first = 0; first < source.find(name)->count(); first += kSlab) {
    const std::vector<float> values = slab_of(source, name, first);
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
      return false;
    }
  }
  return true;
}

bool repeats_embedding(const TensorSource& source) {
  const TensorInfo* head = source.find(kHead);
  const TensorInfo* embedding = source.find(kEmbedding);
  if (head == nullptr || embedding == nullptr || head->shape != embedding->shape) return false;
  for (int64_t first = 0; first < head->count(); first += kSlab) {
    if (slab_of(source, kHead, first) != slab_of(source, kEmbedding, first)) return false;
  }
  return true;
}

}  // namespace

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += cat(i == 0 ? "" : ", ", printable(names[i]));
  }
  return names.size() > kShown ? cat(text, " and ", names.size() - kShown, " more") : text;
}

std::vector<std::string> not_finite(const TensorSource& source) {
  std::vector<std::string> names = source.names();
  std::erase_if(names, [&](const std::string& name) { return is_finite(source, name); });
  return names;
}

void check_initial(Model& model, const TensorSource& source, const std::string& path) {
  std::vector<std::string> missing, misshapen, surplus, not_finite;
  std::set<std::string> wanted;
  for (const ParameterSpec& spec : model.parameters().specs()) {
    const std::string name = kPrefix + spec.name;
    wanted.insert(name);
    const TensorInfo* info = source.find(name);
    if (info == nullptr) {
      missing.push_back(spec.name);
    } else if (info->shape != spec.shape) {
      misshapen.push_back(spec.name);
    } else if (!is_finite(source, name)) {
      not_finite.push_back(spec.name);
    }
  }
  // Files from other programs may lack buffers, which then keep their initial values.
  for (const NamedBuffer& buffer : model.buffers()) {
    const TensorInfo* const info = find_buffer(source, buffer.name);
    if (info == nullptr) continue;
    wanted.insert(info->name);
    if (info->count() != std::ssize(buffer.values)) {
      misshapen.push_back(buffer.name);
    } else if (!is_finite(source, info->name)) {
      not_finite.push_back(buffer.name);
    }
  }
  for (const std::string& name : source.names()) {
    // a run's checkpoint also has optimizer states, which are skipped
    if (!name.starts_with(kPrefix)) continue;
    if (wanted.contains(name) || (name == kHead && repeats_embedding(source))) continue;
    surplus.push_back(name.substr(std::string_view(kPrefix).size()));
  }
  std::string problems;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) problems += cat(problems.empty() ? "" : "; ", what, some_of(names));
  };
  add("the file lacks ", missing);
  add("the model has no ", surplus);
  add("the shape differs for ", misshapen);
  if (!problems.empty()) {
    throw Error(
        ErrorCode::invalid_argument, cat("the parameters in ", path, " do not match the model"),
        {.where = "--initial",
         .cause = cat(problems, "; the given options define ", in_words(model.configuration())),
         .remedy = "use the model options with which the file was created"});
  }
  add("NaN or infinity occurs in ", not_finite);
  if (!problems.empty()) {
    throw Error(
        ErrorCode::invalid_argument, cat("the parameters in ", path, " are not all finite"),
        {.where = "--initial",
         .cause = cat(problems, ": the run that wrote them diverged, or the file is damaged"),
         .remedy = "use an earlier checkpoint of that run, or another file"});
  }
}

}  // namespace tutti::training
