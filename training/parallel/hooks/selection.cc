#include "training/parallel/hooks/selection.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti::training {

bool fits(std::string_view name, const std::string& patterns) {
  const std::string text(name);
  return std::ranges::any_of(split(patterns, ','), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  });
}

void check_patterns(const std::string& patterns, const std::vector<ParameterSpec>& specs) {
  const auto fitting = [&](const ParameterSpec& spec) { return fits(spec.name, patterns); };
  if (specs.empty() || std::ranges::any_of(specs, fitting)) return;
  throw Error(ErrorCode::invalid_argument, cat("no parameter matches ", in_quotes(patterns)),
              {.where = "--compression-only",
               .cause = cat("the parameters are ", specs.front().name, " to ", specs.back().name),
               .remedy = "use patterns such as '*.weight'"});
}

Selection::Selection(const std::string& patterns, const Layout& layout,
                     const std::vector<ParameterSpec>& specs, const Make& make) {
  Layout chosen = layout;
  for (size_t index = 0; index < layout.buckets.size(); ++index) {
    BucketState& bucket = buckets_.emplace_back();
    chosen.buckets[index].parameters.clear();
    for (const int parameter : layout.buckets[index].parameters) {
      const auto p = static_cast<size_t>(parameter);
      const bool fitting = fits(specs[p].name, patterns);
      Part& part = fitting ? bucket.chosen : bucket.rest;
      if (fitting) {
        chosen.slots[p].offset = part.size;
        chosen.buckets[index].parameters.push_back(parameter);
      }
      add(part, layout.slots[p]);
    }
    chosen.buckets[index].size = bucket.chosen.size;
  }
  hook_ = make(chosen);
}

void Selection::add(Part& part, const Slot& slot) {
  part.runs.push_back({.from = slot.offset, .to = part.size, .count = slot.count});
  part.size += round_up(slot.count, kAlignment);
}

Tensor Selection::packed(Part& part, DType dtype) const {
  return tensor_at(part.memory.get(), dtype, 1, part.size);
}

void Selection::copy(const Part& part, Tensor gradients, bool to_bucket) {
  const auto element = static_cast<int64_t>(size_of(gradients.dtype));
  auto* const bucket = static_cast<std::byte*>(gradients.data);
  for (const Run& run : part.runs) {
    std::byte* const there = bucket + run.from * element;
    std::byte* const here = part.memory.get() + run.to * element;
    std::memcpy(to_bucket ? there : here, to_bucket ? here : there,
                static_cast<size_t>(run.count * element));
  }
}

void Selection::pack(Communicator& communicator, Part& part, Tensor gradients) {
  const auto bytes = static_cast<size_t>(part.size) * size_of(gradients.dtype);
  if (part.memory == nullptr) {
    part.memory = communicator.allocate<std::byte>(bytes);
    bytes_ += static_cast<int64_t>(bytes);
  }
  // Zero the gaps between parameters, because a compressed format may have changed them.
  std::memset(part.memory.get(), 0, bytes);
  copy(part, gradients, false);
}

void Selection::start(Communicator& communicator, int bucket, Tensor gradients) {
  BucketState& at = buckets_.at(static_cast<size_t>(bucket));
  if (at.chosen.size > 0) {
    pack(communicator, at.chosen, gradients);
    hook_->start(communicator, bucket, packed(at.chosen, gradients.dtype));
  }
  if (at.rest.size > 0) {
    pack(communicator, at.rest, gradients);
    sums_.start(communicator, bucket, packed(at.rest, gradients.dtype));
  }
}

void Selection::finish(int bucket, Tensor gradients) {
  BucketState& at = buckets_.at(static_cast<size_t>(bucket));
  if (at.chosen.size > 0) {
    hook_->finish(bucket, packed(at.chosen, gradients.dtype));
    copy(at.chosen, gradients, true);
  }
  if (at.rest.size > 0) {
    sums_.finish(bucket);
    copy(at.rest, gradients, true);
  }
}

int64_t Selection::payload_bytes(int bucket, Tensor gradients) const {
  const BucketState& at = buckets_.at(static_cast<size_t>(bucket));
  const Tensor chosen = tensor_at(static_cast<void*>(nullptr), gradients.dtype, 1, at.chosen.size);
  return at.rest.size * static_cast<int64_t>(size_of(gradients.dtype)) +
         (at.chosen.size > 0 ? hook_->payload_bytes(bucket, chosen) : 0);
}

}  // namespace tutti::training
