#include "training/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr size_t kIdxBlock = size_t{1} << 20;
constexpr uint8_t kUnsignedByte = 0x08;  // the only element type that is supported, MNIST's

[[noreturn]] void refuse_idx(const std::string& path, const std::string& cause) {
  throw Error(ErrorCode::invalid_argument, cat("cannot read the IDX file ", path),
              {.cause = cause, .remedy = "download it again, or use another file"});
}

// gzread() reads both compressed and plain files.
class IdxReader {
 public:
  explicit IdxReader(const std::string& path) : path_(path) {
    errno = 0;
    file_.reset(::gzopen(path.c_str(), "rbe"));
    if (!file_) {
      throw system_error(cat("cannot read the IDX file ", path), errno,
                         {.remedy = "check the path and its permissions"});
    }
  }

  // Reads into `into`. Returns fewer bytes than requested only at the end of the file.
  size_t read(std::span<uint8_t> into) {
    const int count = ::gzread(file_.get(), into.data(), static_cast<unsigned>(into.size()));
    int error = Z_OK;
    const char* message = ::gzerror(file_.get(), &error);
    if (error == Z_ERRNO) throw system_error(cat("cannot read the IDX file ", path_), errno);
    if (count < 0 || error != Z_OK) refuse_idx(path_, message);
    return static_cast<size_t>(count);
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { ::gzclose_r(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

std::vector<size_t> read_dimensions(IdxReader& file, const std::string& path, size_t expected) {
  std::array<uint8_t, 4> word{};
  if (file.read(word) < word.size()) refuse_idx(path, "the file ends inside its header");
  if (word[0] != 0 || word[1] != 0)
    refuse_idx(path, "the file does not start with two zero bytes, as IDX files do");
  if (word[2] != kUnsignedByte) {
    refuse_idx(path, cat("the elements are of type ", int{word[2]}, ", not of type 8, bytes"));
  }
  if (word[3] != expected) {
    refuse_idx(path, cat("the file has ", int{word[3]}, word[3] == 1 ? " dimension" : " dimensions",
                         "; images have 3, labels 1"));
  }
  std::vector<size_t> dimensions;
  for (size_t i = 0; i < expected; ++i) {
    if (file.read(word) < word.size()) refuse_idx(path, "the file ends inside its header");
    dimensions.push_back(size_t{word[0]} << 24 | size_t{word[1]} << 16 | size_t{word[2]} << 8 |
                         word[3]);
  }
  return dimensions;
}

// Reads all elements, in blocks, so that a damaged count cannot allocate more memory than the
// file's size.
std::vector<uint8_t> read_elements(IdxReader& file, const std::string& path, size_t count) {
  std::vector<uint8_t> elements;
  while (elements.size() < count) {
    const size_t before = elements.size();
    elements.resize(before + std::min(kIdxBlock, count - before));
    const size_t wanted = elements.size() - before;
    const size_t found = file.read(std::span(elements).subspan(before));
    if (found < wanted) {
      refuse_idx(path,
                 cat("its header specifies ", count, " bytes, but the file has ", before + found));
    }
  }
  std::array<uint8_t, 1> more{};
  if (file.read(more) != 0)
    refuse_idx(path,
               cat("the file continues after the ", count, " bytes that its header specifies"));
  return elements;
}

}  // namespace

IdxImages read_idx_images(const std::string& path) {
  IdxReader file(path);
  const std::vector<size_t> dimensions = read_dimensions(file, path, 3);
  IdxImages images{.count = dimensions[0], .rows = dimensions[1], .columns = dimensions[2]};
  size_t bytes = 0;
  if (__builtin_mul_overflow(images.rows, images.columns, &bytes) ||
      __builtin_mul_overflow(bytes, images.count, &bytes)) {
    refuse_idx(path, cat("its header specifies ", images.count, " images of ", images.rows, " x ",
                         images.columns));
  }
  images.pixels = read_elements(file, path, bytes);
  return images;
}

std::vector<uint8_t> read_idx_labels(const std::string& path) {
  IdxReader file(path);
  return read_elements(file, path, read_dimensions(file, path, 1).front());
}

}  // namespace tutti::training
