// Fuzzes files of `tutti tune`. An accepted file is written, and must be the same when read back.
#include "collectives/cost/cost_model.h"

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  fuzz::take("the text is not a cost model", [&] {
    const CostModel model = parse_cost_model(std::string(fuzz::text_of(data, size)));
    const std::string text = to_json(model);
    fuzz::require(to_json(parse_cost_model(text)) == text, "a model is read as it was written");
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{5000}, ~uint64_t{0}}) {
      fuzz::require(model.link(PathClass::tcp).at(bytes).send >= 0, "bytes cost something");
    }
    fabrics_quicker_than_tcp(model);
  });
  return 0;
}
