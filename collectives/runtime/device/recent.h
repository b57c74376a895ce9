// Least-recently-used cache of values by key.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::internal {

// The cache. Not thread-safe.
template <typename Key, typename Value, typename Hash>
class Recent {
 public:
  // Creates an empty cache. `most`: largest number of values after take_old().
  explicit Recent(size_t most) : most_(most) {}

  size_t size() const { return values_.size(); }

  // Returns the value of the key; null if there is none. The pointer is valid until take_old().
  Value* find(const Key& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return nullptr;
    found->second.used = ++uses_;
    return &found->second.value;
  }
  // Adds a value. The key must not exist.
  Value& add(Key key, Value value) {
    return values_.emplace(std::move(key), Used{std::move(value), ++uses_}).first->second.value;
  }

  // Removes and returns the least recently used half of the values if there are more than `most`;
  // otherwise returns none. Half are removed at once, so that the cost per added value is small.
  std::vector<Value> take_old() {
    if (values_.size() <= most_) return {};
    std::vector<uint64_t> uses;
    for (const auto& [key, kept] : values_) uses.push_back(kept.used);
    const auto middle = uses.begin() + static_cast<ptrdiff_t>(uses.size() / 2);
    std::ranges::nth_element(uses, middle);
    std::vector<Value> old;
    std::erase_if(values_, [&](auto& entry) {
      if (entry.second.used >= *middle) return false;
      old.push_back(std::move(entry.second.value));
      return true;
    });
    return old;
  }

 private:
  struct Used {
    Value value;
    uint64_t used;
  };

  const size_t most_;
  uint64_t uses_ = 0;
  std::unordered_map<Key, Used, Hash> values_;
};

}  // namespace tutti::internal
