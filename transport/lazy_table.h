// A table of which few entries are used, such as the connections to thousands of ranks.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace tutti {

// An unused entry costs one pointer. Entries are created on first use and never move.
template <typename T>
class LazyTable {
 public:
  explicit LazyTable(size_t size) : entries_(size) {}

  size_t size() const { return entries_.size(); }
  // Returns entry `i`, and calls init(entry) if it is new.
  template <typename Init>
  T& get(size_t i, const Init& init) {
    std::unique_ptr<T>& entry = entries_[i];
    if (entry == nullptr) [[unlikely]] {
      entry = std::make_unique<T>();
      used_.push_back(i);
      init(*entry);
    }
    return *entry;
  }
  // Returns null if the entry is unused.
  T* find(size_t i) { return entries_[i].get(); }
  const T* find(size_t i) const { return entries_[i].get(); }
  // Returns the indices of the used entries, in the order of their first use.
  const std::vector<size_t>& used() const { return used_; }

 private:
  std::vector<std::unique_ptr<T>> entries_;
  std::vector<size_t> used_;
};

}  // namespace tutti
