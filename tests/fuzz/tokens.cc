// Fuzzes token files with 16- and 32-bit tokens.
#include <array>

#include "tests/fuzz/target.h"
#include "training/data/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  static const fuzz::InputFile input("tokens.bin");
  input.write(fuzz::text_of(data, size));
  fuzz::take(input.path(), [&] {
    const training::TokenFile file(input.path());
    fuzz::require(file.tokens().size() == file.size(), "all tokens can be read");
    fuzz::require(file.summary().format.vocabulary > 0, "there is a vocabulary");
  });
  return 0;
}
