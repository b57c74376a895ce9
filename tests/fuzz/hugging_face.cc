// Hugging Face's config.json. Of what is taken the model is made, unless it is a large one, and
// described again.
#include "tests/fuzz/target.h"
#include "training/hugging_face/architecture.h"
#include "training/models/registry.h"

namespace tutti::training {

namespace {

// So that a model is made at once.
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
  fuzz::take("config.json", [&] {
    const auto config = hugging_face::ConfigReader::open(file.path());
    const hugging_face::Architecture& architecture = hugging_face::architecture_of(config);
    Json model = architecture.model_of(config);
    model["kind"] = architecture.kind;
    const Json complete = completed_model(model);
    if (is_small(complete)) make_model(complete);
    Json again = Json::object();
    architecture.describe(complete, again);
  });
  return 0;
}
