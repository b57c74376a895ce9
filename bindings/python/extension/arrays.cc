#include "bindings/python/extension/arrays.h"

#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>

#include "bindings/python/extension/errors.h"

namespace tutti::python {

namespace nb = nanobind;

namespace {

std::optional<tutti_dtype_t> dtype_of(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const auto key = [](Code code, int bits) { return static_cast<int>(code) << 8 | bits; };
  if (type.lanes != 1) return std::nullopt;  // vector types are not supported
  switch (const auto code = static_cast<Code>(type.code); key(code, type.bits)) {
    case key(Code::Int, 8):
      return TUTTI_I8;
    case key(Code::Int, 16):
      return TUTTI_I16;
    case key(Code::Int, 32):
      return TUTTI_I32;
    case key(Code::Int, 64):
      return TUTTI_I64;
    case key(Code::UInt, 8):
      return TUTTI_U8;
    case key(Code::UInt, 16):
      return TUTTI_U16;
    case key(Code::UInt, 32):
      return TUTTI_U32;
    case key(Code::UInt, 64):
      return TUTTI_U64;
    case key(Code::Float, 16):
      return TUTTI_F16;
    case key(Code::Bfloat, 16):
      return TUTTI_BF16;
    case key(Code::Float, 32):
      return TUTTI_F32;
    case key(Code::Float, 64):
      return TUTTI_F64;
    case key(Code::Float8_E4M3FN, 8):
      return TUTTI_F8E4M3;
    case key(Code::Float8_E5M2, 8):
      return TUTTI_F8E5M2;
    default:
      return std::nullopt;
  }
}

// Returns the array's own dtype name; "" if it has none.
std::string dtype_name(nb::handle array) {
  const nb::object dtype = nb::getattr(array, "dtype", nb::none());
  return dtype.is_none() ? "" : nb::str(dtype).c_str();
}

// Raises the reason why an array's memory is unusable; reasons are checked in the order in which a
// user would check them. `given`: the object that the caller passed.
[[noreturn]] void refuse(nb::handle array, nb::handle given, Access access, const char* role) {
  std::string what = std::string(role) + " (" + nb::inst_name(given).c_str();
  if (const std::string dtype = dtype_name(given); !dtype.empty()) what += " of " + dtype;
  what += ")";
  nb::ndarray<nb::ro> readable;
  if (!nb::try_cast(array, readable, false)) {
    raise(TUTTI_INVALID_ARGUMENT,
          what +
              " is not an array with accessible memory: it exports neither DLPack nor the buffer "
              "protocol, or has unsupported elements. Pass a NumPy array of numbers in native byte "
              "order, or another array on the CPU; detach a tensor that records gradients first");
  }
  if (readable.device_type() != nb::device::cpu::value) {
    raise(TUTTI_UNSUPPORTED, what + " is not in host memory: copy it to the CPU first");
  }
  nb::ndarray<nb::ro, nb::c_contig> contiguous;
  if (!nb::try_cast(array, contiguous, false)) {
    raise(TUTTI_INVALID_ARGUMENT,
          what + " is not contiguous (C order), and calls access arrays in place. " +
              (access == Access::read
                   ? "Pass a contiguous copy: numpy.ascontiguousarray(), tensor.contiguous()"
                   : "Receive into a contiguous array and assign from it"));
  }
  raise(TUTTI_INVALID_ARGUMENT, what + " is read-only, but the call writes to it");
}

// Returns the memory and dtype of an array with a dtype that NumPy cannot export. The Python side
// passes such memory as plain numbers of the same width, with the dtype.
std::optional<std::pair<nb::object, tutti_dtype_t>> look_through(nb::handle array) {
  const nb::object view = nb::module_::import_("tutti._arrays").attr("look_through")(array);
  if (view.is_none()) return std::nullopt;
  return std::pair(nb::object(view[0]), nb::cast<tutti_dtype_t>(view[1]));
}

// Sets `memory` to the array's memory and returns true if that is contiguous host memory with the
// required access. Returns false otherwise.
bool take(nb::handle array, Access access, nb::ndarray<nb::ro>& memory) {
  if (access == Access::write) {
    nb::ndarray<nb::c_contig, nb::device::cpu> writable;
    if (!nb::try_cast(array, writable, false)) return false;
    memory = nb::ndarray<nb::ro>(writable);
    return true;
  }
  nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> readable;
  if (!nb::try_cast(array, readable, false)) return false;
  memory = nb::ndarray<nb::ro>(readable);
  return true;
}

}  // namespace

Array::Array(nb::handle array, Access access, const char* role) {
  std::optional<tutti_dtype_t> dtype;
  if (take(array, access, memory_)) {
    dtype = dtype_of(memory_.dtype());
  } else {
    const auto plain = look_through(array);
    if (!plain || !take(plain->first, access, memory_)) {
      refuse(plain ? nb::handle(plain->first) : array, array, access, role);
    }
    dtype = plain->second;
  }
  if (!dtype) {
    raise(TUTTI_INVALID_ARGUMENT,
          std::string(role) + " has elements of a type that collectives do not support (" +
              dtype_name(array) +
              "). Convert the array: booleans by array.view(numpy.uint8), complex numbers to pairs "
              "of reals (for sums only)");
  }
  buffer_ = tutti_host(memory_.data(), memory_.size(), *dtype);
}

}  // namespace tutti::python
