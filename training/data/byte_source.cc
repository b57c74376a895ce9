#include "training/data/byte_source.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace tutti::training {
namespace {

Error unreadable(const std::string& path, int errno_value) {
  return system_error(cat("cannot read the text ", path), errno_value,
                      {.remedy = "check the path and its permissions"});
}

Error damaged(const std::string& path, const std::string& cause) {
  return Error(ErrorCode::invalid_argument, cat("cannot decompress ", path),
               {.cause = cause, .remedy = "fetch or compress the file again"});
}

Fd open_file(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw unreadable(path, errno);
  return file;
}

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(std::string path) : path_(std::move(path)), file_(open_file(path_)) {}

  size_t read(std::span<char> bytes) override {
    while (true) {
      const ssize_t count = ::read(file_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw unreadable(path_, errno);
      position_ += static_cast<uint64_t>(count);
      return static_cast<size_t>(count);
    }
  }
  uint64_t position() const override { return position_; }

 private:
  std::string path_;
  Fd file_;
  uint64_t position_ = 0;
};

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(std::string path) : path_(std::move(path)) {
    Fd file = open_file(path_);
    file_.reset(::gzdopen(file.get(), "rb"));
    if (!file_) throw unreadable(path_, ENOMEM);
    file.release();  // gzclose() closes the descriptor
  }

  size_t read(std::span<char> bytes) override {
    const int count = ::gzread(file_.get(), bytes.data(), static_cast<unsigned>(bytes.size()));
    int error = Z_OK;
    const char* text = ::gzerror(file_.get(), &error);
    if (count < 0 || error != Z_OK) {
      throw damaged(path_, error == Z_BUF_ERROR ? "the file ends too early" : text);
    }
    return static_cast<size_t>(count);
  }
  uint64_t position() const override { return static_cast<uint64_t>(::gzoffset(file_.get())); }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { ::gzclose(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

class ZstdSource final : public ByteSource {
 public:
  explicit ZstdSource(std::string path)
      : path_(path), file_(std::move(path)), stream_(ZSTD_createDStream()) {
    compressed_.resize(ZSTD_DStreamInSize());
  }

  size_t read(std::span<char> bytes) override {
    ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size) {
        in_ = {compressed_.data(), file_.read(compressed_), 0};
        if (in_.size == 0 && inside_frame_) throw damaged(path_, "the file ends too early");
        if (in_.size == 0) return 0;
      }
      const size_t left = ZSTD_decompressStream(stream_.get(), &out, &in_);
      if (ZSTD_isError(left)) throw damaged(path_, ZSTD_getErrorName(left));
      inside_frame_ = left != 0;
    }
    return out.pos;
  }
  uint64_t position() const override { return file_.position(); }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  std::string path_;
  PlainSource file_;
  std::unique_ptr<ZSTD_DStream, Free> stream_;
  std::vector<char> compressed_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_frame_ = false;
};

}  // namespace

bool is_compressed(const std::string& path) {
  return path.ends_with(".gz") || path.ends_with(".zst");
}

std::string uncompressed_name(const std::string& path) {
  return is_compressed(path) ? path.substr(0, path.rfind('.')) : path;
}

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  if (path.ends_with(".gz")) return std::make_unique<GzipSource>(path);
  if (path.ends_with(".zst")) return std::make_unique<ZstdSource>(path);
  return std::make_unique<PlainSource>(path);
}

}  // namespace tutti::training
