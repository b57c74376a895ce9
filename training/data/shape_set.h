// Synthetic images of shapes on noise, with a class per pixel. They are generated on demand, for
// first tries of segmentation and for measurements at any size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/data/data_set.h"

namespace tutti::training {

class ShapeSet : public DataSet {
 public:
  // The classes are background, disc, square and triangle.
  static constexpr int64_t kClasses = 4;

  struct Options {
    int64_t height = 64;
    int64_t width = 64;
    uint64_t count = 4096;  // number of training images; there are an eighth as many for validation
    uint64_t seed = 1;
  };
  static bool is_named(const std::string& name) { return name.starts_with("shapes:"); }
  // Parses the name "shapes:HEIGHTxWIDTH[:COUNT[:SEED]]". Throws Error(invalid_argument) for other
  // texts.
  static Options parse(const std::string& name);

  // Creates the set. `pixels`: each pixel has a target. Otherwise each image has one target: the
  // class, other than background, that has the most pixels.
  ShapeSet(const Options& options, bool pixels) : options_(options), pixels_(pixels) {}

  int64_t height() const { return options_.height; }
  int64_t width() const { return options_.width; }
  int64_t classes() const { return kClasses; }
  uint64_t size() const override { return options_.count; }
  uint64_t validation_size() const override { return (options_.count + 7) / 8; }
  void add(uint64_t example, uint64_t epoch, Batch& batch) const override;
  void add_validation(uint64_t example, Batch& batch) const override;
  uint64_t fingerprint() const override;

 private:
  void draw(uint64_t number, Batch& batch) const;

  Options options_;
  bool pixels_;
};

}  // namespace tutti::training
