#include "training/checkpoint/tensor_source.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"
#include "base/reduce.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr size_t kBlock = 4096;

// Convert between a type and float. The processor rounds doubles to nearest.
void to_floats(float* floats, const std::byte* from, DType type, size_t count) {
  if (type == DType::f32) {
    std::memcpy(floats, from, count * sizeof(float));
  } else if (type == DType::f64) {
    for (size_t i = 0; i < count; ++i) {
      double value;
      std::memcpy(&value, from + i * sizeof value, sizeof value);
      floats[i] = static_cast<float>(value);
    }
  } else {
    widen(floats, from, count, type);
  }
}

void from_floats(std::byte* to, const float* floats, DType type, size_t count) {
  if (type == DType::f32) {
    std::memcpy(to, floats, count * sizeof(float));
  } else if (type == DType::f64) {
    for (size_t i = 0; i < count; ++i) {
      const double value = floats[i];
      std::memcpy(to + i * sizeof value, &value, sizeof value);
    }
  } else {
    narrow(to, floats, count, type);
  }
}

}  // namespace

const TensorInfo& checked_range(const TensorSource& source, const std::string& where,
                                std::string_view name, int64_t first, const Tensor& out) {
  const TensorInfo* info = source.find(name);
  if (info == nullptr) {
    const std::string close = nearest(name, source.names());
    throw Error(ErrorCode::invalid_argument, cat(where, " has no tensor ", in_quotes(name)),
                {.cause = "the file belongs to another model or another optimizer",
                 .remedy = close.empty() ? "" : cat("did you mean ", in_quotes(close), "?")});
  }
  if (out.rows != 1 || first < 0 || first > info->count() - out.cols) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("tensor ", in_quotes(name), " of ", where, " has ", info->count(), " elements; [",
            first, ", ", first + out.size(), ") in ", out.rows, " row(s) is not within them"),
        {.cause = "the model has different sizes"});
  }
  return *info;
}

void read_slice(const TensorSource& source, std::string_view name, const Slice& slice,
                int64_t first, Tensor out) {
  for_each_run(slice, first, out.cols, [&](const Slice::Run& run, int64_t at) {
    source.read(name, run.whole, out.col_range(at, run.count));
  });
}

void copy_tensor(const TensorSource& source, std::string_view name, DType type,
                 SafetensorsWriter& file) {
  constexpr int64_t kSlab = 1 << 18;  // elements that are converted at a time
  const TensorInfo* const info = source.find(name);
  const int64_t count = info == nullptr ? 0 : info->count();
  std::vector<std::byte> slab(static_cast<size_t>(std::min(kSlab, count)) * size_of(type));
  for (int64_t first = 0; first < count; first += kSlab) {
    const Tensor part = tensor_at(slab.data(), type, 1, std::min(kSlab, count - first));
    source.read(name, first, part);
    file.write({part.data, part.bytes()});
  }
}

void convert_elements(const std::byte* bytes, DType from, Tensor out) {
  if (from == out.dtype) {
    if (!out.empty()) std::memcpy(out.data, bytes, out.bytes());
    return;
  }
  if (!is_float(from) || !is_float(out.dtype)) {
    throw Error(ErrorCode::unsupported,
                cat("elements of type ", name(from), " cannot be read as ", name(out.dtype)));
  }
  std::array<float, kBlock> floats;
  const auto count = static_cast<size_t>(out.size());
  for (size_t done = 0; done < count; done += kBlock) {
    const size_t part = std::min(kBlock, count - done);
    to_floats(floats.data(), bytes + done * size_of(from), from, part);
    from_floats(out.data + done * size_of(out.dtype), floats.data(), out.dtype, part);
  }
}

const TensorInfo* find_buffer(const TensorSource& source, const std::string& name) {
  const TensorInfo* const found = source.find(cat(kBufferPrefix, name));
  return found != nullptr ? found : source.find(cat(kModelPrefix, name));
}

}  // namespace tutti::training
