// Uses Python arrays as the library's buffers, without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "bindings/c/tutti.h"

namespace tutti::python {

enum class Access { read, write };

// An array in use by a call. It is kept alive until this object is destroyed. Destruction requires
// the GIL.
class Array {
 public:
  Array() = default;  // represents None
  // Takes an array: a NumPy array, or any object with __dlpack__ or the buffer protocol. `role`
  // names the array in errors. Raises tutti.Error if it is not contiguous, not in host memory, of
  // an unsupported dtype, or read-only although it must be written.
  Array(nanobind::handle array, Access access, const char* role);

  const tutti_buffer_t& buffer() const { return buffer_; }
  size_t bytes() const { return memory_.nbytes(); }
  // Returns the array's count and dtype, without data.
  tutti_buffer_t shape() const { return tutti_host(nullptr, buffer_.count, buffer_.dtype); }

 private:
  nanobind::ndarray<nanobind::ro> memory_;
  tutti_buffer_t buffer_{};
};

}  // namespace tutti::python
