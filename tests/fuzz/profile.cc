// Fuzzes profiles of a model's layers. The partitioner must partition or refuse each accepted
// profile.
#include <algorithm>
#include <optional>

#include "tests/fuzz/target.h"
#include "training/pipeline/profile_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  using namespace tutti::training::pipeline;
  std::optional<Profile> profile;
  fuzz::take("the.file",
             [&] { profile = profile_from_json(fuzz::text_of(data, size), "the.file"); });
  // The work grows with the third power of the number of layers.
  if (!profile || profile->layers.size() > 100) return 0;
  fuzz::take("layer", [&] {
    const Link link{.bandwidth = 1e9, .latency = 1e-6};
    partition(profile->layers, {.nodes = 2, .ranks_per_node = 2, .inside = link, .between = link});
    fuzz::require(
        profile_from_json(to_json(*profile), "again").layers.size() == profile->layers.size(),
        "a profile is read as it was written");
  });
  return 0;
}
