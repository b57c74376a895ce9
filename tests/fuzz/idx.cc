// Fuzzes MNIST's files, plain and compressed.
#include "training/data/idx.h"

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  static const fuzz::InputFile file("images.idx");
  file.write(fuzz::text_of(data, size));
  fuzz::take(file.path(), [&] {
    const training::IdxImages images = training::read_idx_images(file.path());
    for (size_t i = 0; i < images.count && images.rows * images.columns > 0; ++i) {
      fuzz::require(images.image(i).size() == images.rows * images.columns, "images are whole");
    }
  });
  fuzz::take(file.path(), [&] { training::read_idx_labels(file.path()); });
  return 0;
}
