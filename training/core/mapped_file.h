// Memory backed by an unnamed file, for state that exceeds the machine's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tutti::training {

// Returns `count` zeroed floats, aligned to a page, mapped from an unnamed file in this directory,
// which is freed with the last copy of the pointer. Pages are swapped in and out on demand; disk
// space is reserved at once. Throws Error(system), naming the directory, if the disk is full or the
// directory not writable.
std::shared_ptr<float[]> map_floats(const std::string& directory, size_t count);

}  // namespace tutti::training
