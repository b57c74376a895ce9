#include "training/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/git_lfs.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr const char* kMetadata = "__metadata__";
constexpr uint64_t kMaxHeader = 100'000'000;  // limit of the format

constexpr std::pair<const char*, DType> kTypes[] = {
    {"F64", DType::f64},        {"F32", DType::f32},        {"F16", DType::f16},
    {"BF16", DType::bf16},      {"I64", DType::i64},        {"I32", DType::i32},
    {"I16", DType::i16},        {"I8", DType::i8},          {"U64", DType::u64},
    {"U32", DType::u32},        {"U16", DType::u16},        {"U8", DType::u8},
    {"F8_E4M3", DType::f8e4m3}, {"F8_E5M2", DType::f8e5m2}, {"BOOL", DType::u8},
};

// Parses a header. Every error names the file and, if possible, the tensor.
class Header {
 public:
  Header(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  void read(std::vector<StoredTensor>& tensors, std::map<std::string, std::string>& metadata) {
    const Json root = parse();
    for (const auto& [name, entry] : root.items()) {
      tensor_ = name;
      if (name == kMetadata) {
        metadata = strings(entry);
      } else {
        tensors.push_back(tensor(name, entry));
      }
    }
    std::ranges::sort(tensors, [](const StoredTensor& a, const StoredTensor& b) {
      return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
    });
    check_that_they_adjoin(tensors);
  }

 private:
  [[noreturn]] void refuse(const std::string& cause,
                           ErrorCode code = ErrorCode::invalid_argument) const {
    throw Error(code,
                cat(path_, " is not a valid safetensors file: ",
                    tensor_.empty() ? "" : cat("tensor ", in_quotes(tensor_), ": "), cause),
                {.remedy = "check that the file is in this format; if it is, download it again: it "
                           "may be truncated"});
  }

  Json parse() {
    uint64_t length = 0;
    if (bytes_.size() < sizeof length) {
      refuse(cat("it has ", bytes_.size(), " bytes, too few for the length of a header"));
    }
    std::memcpy(&length, bytes_.data(), sizeof length);
    const uint64_t left = bytes_.size() - sizeof length;
    if (is_git_lfs_pointer({reinterpret_cast<const char*>(bytes_.data()), bytes_.size()})) {
      throw Error(ErrorCode::invalid_argument, cat(path_, " is not a valid safetensors file"),
                  {.cause = kGitLfsCause, .remedy = kGitLfsRemedy});
    }
    if (length > kMaxHeader) refuse(cat("its header length is given as ", length, " bytes"));
    if (length > left) {
      refuse(cat("its header length is given as ", length, " bytes, but only ", left,
                 " bytes follow"));
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + sizeof length,
                                length);
    data_ = bytes_.subspan(sizeof length + length);
    if (text.empty() || text.front() != '{') refuse("its header does not start with {");
    try {
      return Json::parse(text);
    } catch (const Error& error) {
      refuse(cat("its header: ", error.what()));
    }
  }

  std::map<std::string, std::string> strings(const Json& entry) const {
    if (!entry.is_object()) refuse("it is not an object");
    std::map<std::string, std::string> result;
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) refuse(cat("the value of ", in_quotes(key), " is not a string"));
      result[key] = value.get<std::string>();
    }
    return result;
  }

  // Returns the array's numbers, which must be non-negative integers.
  template <typename Number>
  std::vector<Number> numbers(const Json& entry, const char* key) const {
    if (!entry.contains(key) || !entry.at(key).is_array()) refuse(cat("it has no ", key));
    std::vector<Number> result;
    for (const Json& one : entry.at(key)) {
      if (!one.is_natural_number() ||
          one.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
        refuse(cat("its ", key, " has ", one.words(), ", which is not a size"));
      }
      result.push_back(static_cast<Number>(one.get<uint64_t>()));
    }
    return result;
  }

  StoredTensor tensor(const std::string& name, const Json& entry) const {
    if (!entry.is_object()) refuse("it is not an object");
    for (const auto& [key, value] : entry.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        refuse(cat("it has the unknown field ", in_quotes(key)));
      }
    }
    if (!entry.contains("dtype") || !entry.at("dtype").is_string()) refuse("it has no dtype");
    const auto type = entry.at("dtype").get<std::string>();
    const std::optional<DType> dtype = safetensors_type(type);
    if (!dtype) refuse(cat("its type ", in_quotes(type), " is unknown"), ErrorCode::unsupported);

    StoredTensor result{{name, *dtype, numbers<int64_t>(entry, "shape")}, {}};
    const std::optional<int64_t> count = count_of(result.info.shape);
    if (!count) refuse("the number of elements of its shape exceeds the address space");
    const std::vector<uint64_t> offsets = numbers<uint64_t>(entry, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) refuse("its data_offsets are not a range");
    if (offsets[1] > data_.size()) {
      refuse(cat("it ends at byte ", offsets[1], " of the data, which has only ", data_.size()));
    }
    const uint64_t size = static_cast<uint64_t>(*count) * size_of(*dtype);
    if (offsets[1] - offsets[0] != size) {
      refuse(
          cat("it has ", offsets[1] - offsets[0], " bytes, but its shape and type require ", size));
    }
    result.bytes = data_.subspan(offsets[0], size);
    return result;
  }

  // Checks that tensors do not overlap, and that there are no other bytes between them.
  void check_that_they_adjoin(const std::vector<StoredTensor>& tensors) {
    const std::byte* end = data_.data();
    for (const StoredTensor& tensor : tensors) {
      tensor_ = tensor.info.name;
      const auto gap = tensor.bytes.data() - end;
      if (gap < 0) refuse("it overlaps the previous tensor");
      if (gap > 0) refuse(cat(gap, " bytes before it belong to no tensor"));
      end = tensor.bytes.data() + tensor.bytes.size();
    }
    tensor_.clear();
    const auto rest = data_.data() + data_.size() - end;
    if (rest > 0) refuse(cat(rest, " bytes at its end belong to no tensor"));
  }

  const std::string& path_;
  std::span<const std::byte> bytes_;
  std::span<const std::byte> data_;
  std::string tensor_;  // name of the current tensor, for errors
};

}  // namespace

int64_t TensorInfo::count() const { return count_of(shape).value_or(0); }

std::optional<int64_t> count_of(const std::vector<int64_t>& shape) {
  // limit up to which the size in bytes fits into int64_t as well, at up to 16 bytes per element
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 16;
  int64_t count = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || (count > 0 && dimension > kMax / count)) return std::nullopt;
    count *= dimension;
  }
  return count;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t dimension : shape) text += cat(text.empty() ? "" : " x ", dimension);
  return text.empty() ? "one number" : text;
}

std::string safetensors_name(DType type) {
  for (const auto& [name, one] : kTypes) {
    if (one == type) return name;
  }
  throw Error(ErrorCode::unsupported,
              cat("safetensors has no type name for elements of type ", name(type)));
}

std::optional<DType> safetensors_type(std::string_view name) {
  for (const auto& [one, type] : kTypes) {
    if (one == name) return type;
  }
  return std::nullopt;
}

SafetensorsFile::SafetensorsFile(MappedFile file) : file_(std::move(file)) {
  Header(path(), file_.bytes()).read(tensors_, metadata_);
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].info.name] = i;
}

std::span<const std::byte> SafetensorsFile::header() const {
  uint64_t length = 0;
  std::memcpy(&length, bytes().data(), sizeof length);
  return bytes().first(sizeof length + length);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     const std::vector<TensorInfo>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  Json header = Json::object();
  for (const auto& [key, value] : metadata) header[kMetadata][key] = value;
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    const std::optional<int64_t> count = count_of(tensor.shape);
    if (!count || header.contains(tensor.name) || tensor.name == kMetadata) {
      throw Error(
          ErrorCode::invalid_argument,
          cat("cannot write tensor ", in_quotes(tensor.name), " to ", path, ": ",
              count ? "the file already has a tensor with that name" : "its shape is invalid"));
    }
    const uint64_t end = offset + static_cast<uint64_t>(*count) * size_of(tensor.dtype);
    header[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument,
                cat("cannot write ", path, ": a name in it is not valid UTF-8: ", error.what()));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeader) {
    throw Error(ErrorCode::invalid_argument,
                cat("cannot write ", path, ": its header would have ", text.size(), " bytes"));
  }
  const uint64_t length = text.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(text);
  expected_ = file_.size() + offset;
}

void SafetensorsWriter::finish() {
  if (file_.size() != expected_) {
    throw Error(ErrorCode::internal, cat(file_.path(), " has ", file_.size(),
                                         " bytes, but its header says ", expected_));
  }
  file_.finish();
}

}  // namespace tutti::training
