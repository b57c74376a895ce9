#include "training/data/image_set.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/core/random.h"

namespace tutti::training {
namespace {

// Returns the path of the plain file or of the file with .gz, whichever exists. If neither does,
// returns the plain path, for the error.
std::string find_file(const std::string& directory, const std::string& name) {
  const std::string plain = directory + "/" + name;
  return std::filesystem::exists(plain + ".gz") && !std::filesystem::exists(plain) ? plain + ".gz"
                                                                                   : plain;
}

}  // namespace

ImageSet::ImageSet(const std::string& directory, bool pixels)
    : pixels_(pixels),
      training_(read(directory, "train", pixels)),
      validation_(read(directory, "t10k", pixels)),
      fingerprint_(fingerprint(training_, validation_)) {
  if (training_.images.rows == validation_.images.rows &&
      training_.images.columns == validation_.images.columns) {
    return;
  }
  throw Error(ErrorCode::invalid_argument,
              "the training images and the validation images differ in size", {.where = directory});
}

ImageSet::Part ImageSet::read(const std::string& directory, const std::string& prefix,
                              bool pixels) {
  Part part{read_idx_images(find_file(directory, prefix + "-images-idx3-ubyte")), {}};
  if (pixels) {
    IdxImages masks = read_idx_images(find_file(directory, prefix + "-masks-idx3-ubyte"));
    const IdxImages& images = part.images;
    const auto shape = [](const IdxImages& all) {
      return cat(all.count, " of ", all.rows, " x ", all.columns);
    };
    if (shape(masks) == shape(images) && images.count > 0) {
      part.labels = std::move(masks.pixels);
      return part;
    }
    throw Error(ErrorCode::invalid_argument,
                cat("the images are ", shape(images), ", but the masks are ", shape(masks)),
                {.where = cat(directory, "/", prefix, "-*"),
                 .cause = "the two files belong to different data sets"});
  }
  part.labels = read_idx_labels(find_file(directory, prefix + "-labels-idx1-ubyte"));
  if (part.images.count == part.labels.size() && part.images.count > 0) return part;
  throw Error(ErrorCode::invalid_argument,
              cat("there are ", part.images.count, " images, but ", part.labels.size(), " labels"),
              {.where = cat(directory, "/", prefix, "-*"),
               .cause = "the two files belong to different data sets"});
}

int64_t ImageSet::classes() const {
  return 1 + std::max(*std::ranges::max_element(training_.labels),
                      *std::ranges::max_element(validation_.labels));
}

void ImageSet::add(const Part& part, uint64_t example, Batch& batch) {
  for (const uint8_t pixel : part.images.image(example)) {
    batch.features.push_back(static_cast<float>(pixel) / 255.0f);
  }
  const size_t each = part.labels.size() / part.images.count;
  const auto labels = std::span(part.labels).subspan(example * each, each);
  batch.targets.insert(batch.targets.end(), labels.begin(), labels.end());
  ++batch.samples;
}

void ImageSet::add(uint64_t example, uint64_t, Batch& batch) const {
  add(training_, example, batch);
}

void ImageSet::add_validation(uint64_t example, Batch& batch) const {
  add(validation_, example, batch);
}

uint64_t ImageSet::fingerprint(const Part& training, const Part& validation) {
  uint64_t hash = training.images.count;
  for (const Part* part : {&training, &validation}) {
    for (const uint8_t pixel : part->images.pixels) hash = mix_bits(hash + pixel);
    for (const uint8_t label : part->labels) hash = mix_bits(hash + label);
  }
  return hash;
}

}  // namespace tutti::training
