// Grey images from IDX files like MNIST's, with a class for each image or for each pixel.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "training/data/data_set.h"
#include "training/data/idx.h"

namespace tutti::training {

// The images in a directory with train-images-idx3-ubyte, train-labels-idx1-ubyte,
// t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or with .gz. The t10k files are for
// validation. If pixels have targets, train-masks-idx3-ubyte and t10k-masks-idx3-ubyte replace the
// files of labels.
class ImageSet : public DataSet {
 public:
  // Reads the files of `directory`. `pixels`: each pixel has a target. Throws Error that names a
  // missing or inconsistent file.
  explicit ImageSet(const std::string& directory, bool pixels = false);

  int64_t height() const { return static_cast<int64_t>(training_.images.rows); }
  int64_t width() const { return static_cast<int64_t>(training_.images.columns); }
  int64_t classes() const;

  uint64_t size() const override { return training_.images.count; }
  uint64_t validation_size() const override { return validation_.images.count; }
  void add(uint64_t example, uint64_t epoch, Batch& batch) const override;
  void add_validation(uint64_t example, Batch& batch) const override;
  std::span<const uint8_t> labels() const override {
    return pixels_ ? std::span<const uint8_t>() : training_.labels;
  }
  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  struct Part {
    IdxImages images;
    std::vector<uint8_t> labels;  // classes of the images, or of all their pixels
  };
  static Part read(const std::string& directory, const std::string& prefix, bool pixels);
  static void add(const Part& part, uint64_t example, Batch& batch);
  static uint64_t fingerprint(const Part& training, const Part& validation);

  bool pixels_;
  Part training_;
  Part validation_;
  uint64_t fingerprint_;
};

}  // namespace tutti::training
