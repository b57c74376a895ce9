// Copies that bypass the caches, for data that is not read again soon. They avoid fetching the
// destination's cache lines and do not evict others. (Only on x86-64; elsewhere they are memcpy.)
#pragma once

#include <cstddef>

namespace tutti {

// Copies as memcpy does. Other threads see the copy after stream_fence() and the usual release and
// acquire.
void stream_copy(void* destination, const void* source, size_t bytes);
void stream_fence();

}  // namespace tutti
