// Fuzzes checkpoint manifests. The inputs lack the first line, a checksum without which the rest
// would not be parsed. It is added to all but a few inputs.
#include "training/checkpoint/manifest.h"

#include "base/text.h"
#include "tests/fuzz/target.h"
#include "training/checkpoint/checksum.h"

namespace tutti::training {

namespace {

std::string sealed(std::string_view rest) {
  return cat("{\"xxh3_64\": \"", checksum_of(std::as_bytes(std::span(rest))), "\",\n", rest);
}

void walk(const Manifest& manifest) {
  for (const TensorEntry& tensor : manifest.tensors) {
    for (const StoredSlice& stored : tensor.slices) {
      for (const StoredPiece& piece : stored.pieces) {
        piece_name(tensor.info.name, stored.slice, piece.first, piece.count);
        manifest.file_name(piece.file);
        const Slice::Run run = stored.slice.run_from(piece.first);
        fuzz::require(run.count > 0, "there is something at a piece's first element");
        fuzz::require(stored.slice.count_before(run.whole) == piece.first,
                      "an element is where it says");
      }
    }
  }
  manifest.bytes();
}

}  // namespace

}  // namespace tutti::training

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::take("the.file", [&] {
    training::walk(
        training::parse_manifest(size % 16 == 0 ? text : training::sealed(text), "the.file"));
  });
  return 0;
}
