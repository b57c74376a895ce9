#include "base/half.h"

#include "base/error.h"
#include "base/kernels/convert.h"
#include "base/text.h"

namespace tutti {

namespace {

[[noreturn]] void refuse(DType type) {
  throw Error(ErrorCode::invalid_argument,
              cat(name(type), " is not a 16- or 8-bit floating-point type"));
}

}  // namespace

float to_float(DType type, uint16_t bits) {
  switch (type) {
    case DType::f16:
      return kernels::F16::widen(bits);
    case DType::bf16:
      return kernels::BF16::widen(bits);
    case DType::f8e4m3:
      return kernels::F8E4M3::widen(static_cast<uint8_t>(bits));
    case DType::f8e5m2:
      return kernels::F8E5M2::widen(static_cast<uint8_t>(bits));
    default:
      refuse(type);
  }
}

uint16_t from_float(DType type, float value) {
  switch (type) {
    case DType::f16:
      return kernels::F16::narrow(value);
    case DType::bf16:
      return kernels::BF16::narrow(value);
    case DType::f8e4m3:
      return kernels::F8E4M3::narrow(value);
    case DType::f8e5m2:
      return kernels::F8E5M2::narrow(value);
    default:
      refuse(type);
  }
}

}  // namespace tutti
