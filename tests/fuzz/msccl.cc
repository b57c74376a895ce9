// Fuzzes algorithm files: MSCCL's XML, and rings as JSON. Reading proves an algorithm. An accepted
// algorithm is exported, read again and thus proved again.
#include "collectives/interchange/json.h"
#include "collectives/interchange/msccl_import.h"
#include "collectives/proof/verify.h"
#include "tests/fuzz/target.h"

namespace tutti {

namespace {

void use(const Imported& imported) {
  fuzz::require(imported.grade != Grade::wrong, "a file that is taken has been proved");
  const ProgramSet set{imported.collective, imported.name, imported.root, imported.programs};
  const ProgramSet again = programs_from_json(to_json(set));
  const Verdict verdict = verify(again.collective, again.programs, {.root = again.root});
  fuzz::require(verdict.problem.empty(), "a program that was written and read again is right");
}

}  // namespace

}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  const std::string_view text = fuzz::text_of(data, size);
  const bool is_json = text.starts_with('{');
  fuzz::take("the.file", [&] {
    use(is_json ? read_found_rings(text, "the.file") : read_msccl(text, "the.file"));
  });
  return 0;
}
