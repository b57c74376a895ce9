// Fuzzes programs as JSON. Reading checks their form; the proof checks everything else and must
// handle any program with this form.
#include "collectives/interchange/json.h"
#include "collectives/proof/verify.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  fuzz::take("", [&] {
    const ProgramSet set = programs_from_json(fuzz::text_of(data, size));
    const Verdict verdict = verify(set.collective, set.programs, {.root = set.root});
    fuzz::require((verdict.grade == Grade::wrong) == !verdict.problem.empty(),
                  "a verdict says what is wrong");
    programs_from_json(to_json(set));
  });
  return 0;
}
