// Python's arrays as the library's buffers, without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "bindings/c/tutti.h"

namespace tutti::python {

enum class Access { read, write };

// An array that a call works on, kept alive until this ends. Ended with the GIL held.
class Array {
 public:
  Array() = default;  // no data: None
  // Takes NumPy's arrays and whatever has __dlpack__ or the buffer protocol; `role` is its name in
  // errors. Raises tutti.Error where it is not contiguous, not in host memory, of a type that the
  // library has not got, or read-only where it must be written.
  Array(nanobind::handle array, Access access, const char* role);

  const tutti_buffer_t& buffer() const { return buffer_; }
  size_t bytes() const { return memory_.nbytes(); }
  // Its count and type, without data.
  tutti_buffer_t shape() const { return tutti_host(nullptr, buffer_.count, buffer_.dtype); }

 private:
  nanobind::ndarray<nanobind::ro> memory_;
  tutti_buffer_t buffer_{};
};

}  // namespace tutti::python
