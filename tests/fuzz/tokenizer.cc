// Fuzzes Hugging Face's tokenizer.json. Each accepted tokenizer tokenizes and detokenizes a text.
#include "training/data/tokenizer.h"

#include "tests/fuzz/target.h"
#include "training/data/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  static const fuzz::InputFile file(training::kTokenizerJson);
  file.write(fuzz::text_of(data, size));
  fuzz::take(file.path(), [&] {
    const auto made = training::make_tokenizer(file.path());
    const training::Tokenizer& tokenizer = *made;
    const std::string_view text =
        "All together: hello, world! \xc3\xa9\xff 1234<|endoftext|>\n\n x";
    const std::vector<int32_t> tokens = tokenizer.encode(text);
    for (const int32_t token : tokens) {
      fuzz::require(token >= 0 && static_cast<size_t>(token) < tokenizer.vocabulary_size(),
                    "tokens are of the vocabulary");
      tokenizer.text_of(token);
    }
    tokenizer.decode(tokens);
    fuzz::require(tokenizer.last_cut(text) <= text.size(), "a text is cut where it is");
  });
  return 0;
}
