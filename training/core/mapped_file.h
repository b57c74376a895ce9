// Memory in a file that nobody else sees: for state that is larger than the memory there is.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tutti::training {

// Zeroed floats, aligned to a page, in a file of this directory that has no name and is gone with
// the last copy of the pointer. Its pages come and go as they are used. All of it is on the disk
// from the start. Throws Error(system), naming the directory, where that has no room or cannot be
// written.
std::shared_ptr<float[]> map_floats(const std::string& directory, size_t count);

}  // namespace tutti::training
