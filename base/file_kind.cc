#include "base/file_kind.h"

#include <array>
#include <cstddef>

namespace tutti {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

constexpr std::array kLimits = {
    FileLimit{FileKind::configuration, "a run's configuration", 16 * kMiB},
    FileLimit{FileKind::cost_model, "a cost model", 16 * kMiB},
    FileLimit{FileKind::faults, "a fault plan", 64 * kMiB},
    FileLimit{FileKind::graph, "a topology or a network", 256 * kMiB},
    FileLimit{FileKind::hosts, "a list of hosts", 16 * kMiB},
    FileLimit{FileKind::losses, "the losses of a run", 1024 * kMiB},
    FileLimit{FileKind::mix, "a layer mix", kMiB},
    FileLimit{FileKind::order, "a record of updates", 1024 * kMiB},
    FileLimit{FileKind::profile, "a model's profile", 64 * kMiB},
    FileLimit{FileKind::program, "a collective program", 64 * kMiB},
    FileLimit{FileKind::report, "a failure report", 64 * kMiB},
    FileLimit{FileKind::tokenizer, "a tokenizer", 256 * kMiB},
};

constexpr bool is_in_order() {
  for (size_t i = 0; i < kLimits.size(); ++i) {
    if (static_cast<size_t>(kLimits[i].kind) != i) return false;
  }
  return true;
}
static_assert(is_in_order());

}  // namespace

std::span<const FileLimit> file_limits() { return kLimits; }
const FileLimit& limit_of(FileKind kind) { return kLimits[static_cast<size_t>(kind)]; }

}  // namespace tutti
