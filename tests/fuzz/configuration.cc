// Fuzzes configurations of runs as passed to --config. An accepted configuration is written, must
// be the same when read back, and is completed for a few ranks.
#include "tests/fuzz/target.h"
#include "training/setup/merge.h"
#include "training/setup/options.h"
#include "training/setup/settle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  using namespace tutti::training;
  static const fuzz::InputFile file("run.json");
  file.write(fuzz::text_of(data, size));
  std::optional<RunOptions> options;
  fuzz::take("run.json", [&] {
    const Json json = read_configuration_file(file.path());
    options.emplace();
    read_options(merged(json, Json::object()), *options, file.path());
  });
  fuzz::take("", [&] {
    if (!options) return;
    settle(*options, 2, 1000);
    const Json all = written(*options);
    RunOptions again;
    read_options(all, again, "what was written");
    fuzz::require(written(again) == all, "a configuration is read as it was written");
  });
  return 0;
}
