// Fuzzes files of tensors. All bytes of accepted files are read.
#include "training/checkpoint/safetensors.h"

#include "tests/fuzz/target.h"
#include "training/checkpoint/checksum.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  static const fuzz::InputFile input("model.safetensors");
  input.write(fuzz::text_of(data, size));
  fuzz::take(input.path(), [&] {
    const training::SafetensorsFile file(input.path());
    for (const training::StoredTensor& tensor : file.tensors()) {
      training::checksum_of(tensor.bytes);
      fuzz::require(file.find(tensor.info.name) != nullptr, "tensors are found by name");
      fuzz::require(static_cast<size_t>(tensor.info.count()) * size_of(tensor.info.dtype) ==
                        tensor.bytes.size(),
                    "a tensor has the bytes of its shape");
    }
  });
  return 0;
}
