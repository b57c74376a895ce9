// Fuzzes Hugging Face's config.json. The model of an accepted file is created, unless it is large,
// and described again.
#include "tests/fuzz/target.h"
#include "training/hugging_face/directory.h"
#include "training/models/registry.h"

namespace tutti::training {

namespace {

// Returns true if the model is small enough to be created quickly.
bool is_small(const Json& model) {
  return model.value<int64_t>("layers", 0) <= 64 && model.value<int64_t>("width", 0) <= 1 << 16;
}

}  // namespace

}  // namespace tutti::training

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  using namespace tutti::training;
  static const fuzz::InputFile file("config.json");
  file.write(fuzz::text_of(data, size));
  std::optional<Json> model;
  fuzz::take("config.json", [&] {
    const auto config = hugging_face::ConfigReader::open(file.path());
    model = hugging_face::read_model(config);
    Json again = Json::object();
    hugging_face::architecture_of(config).describe(*model, again);
  });
  if (model && is_small(*model)) fuzz::take("", [&] { make_model(*model); });
  return 0;
}
