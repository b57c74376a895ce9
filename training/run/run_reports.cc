#include "training/run/run_reports.h"

#include <array>
#include <cstddef>
#include <span>

#include "training/checkpoint/checksum.h"

namespace tutti::training {

std::vector<RankReport> reports_of_ranks(Replica& replica, uint64_t steps, double waited_seconds) {
  constexpr size_t kNumbers = 6;
  const Staleness stale = replica.staleness();
  const bool is_worker = stale.pushes > 0;
  const std::array<double, kNumbers> own = {
      static_cast<double>(replica.has_servers() ? stale.pushes : static_cast<int64_t>(steps)),
      waited_seconds,
      replica.bytes_sent(),
      is_worker ? 1.0 : 0.0,
      static_cast<double>(stale.largest),
      stale.mean()};
  std::vector<double> all(kNumbers * static_cast<size_t>(replica.world().size()));
  replica.world().all_gather({own.data(), own.size(), DType::f64},
                             {all.data(), all.size(), DType::f64});
  std::vector<RankReport> reports;
  for (size_t i = 0; i < all.size(); i += kNumbers) {
    reports.push_back({static_cast<uint64_t>(all[i]), all[i + 1], all[i + 2], std::nullopt});
    if (all[i + 3] == 0) continue;
    reports.back().staleness = {static_cast<int64_t>(all[i + 4]), all[i + 5]};
  }
  return reports;
}

std::string digest_of_values(Model& model) {
  Checksum checksum;
  for (int parameter = 0; parameter < model.parameters().size(); ++parameter) {
    const Tensor values = model.parameters().at(parameter).value;
    checksum.add({static_cast<const std::byte*>(values.data), values.bytes()});
  }
  return checksum.hex();
}

std::string digest_of_settings(Json settings) {
  for (const char* name : {"flush-every", "validate-every", "checkpoint-every"}) {
    settings.erase(name);
  }
  const std::string text = settings.dump();
  return checksum_of(std::as_bytes(std::span(text)));
}

}  // namespace tutti::training
