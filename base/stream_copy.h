// Copies past the caches: for what will not be looked at again soon. Saves reading the lines of the
// destination before they are overwritten, and leaves in the caches what is there.
#pragma once

#include <cstddef>

namespace tutti {

// As memcpy. Other threads see the copy after stream_fence() and what else makes them see things.
void stream_copy(void* destination, const void* source, size_t bytes);
void stream_fence();

}  // namespace tutti
