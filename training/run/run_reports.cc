#include "training/run/run_reports.h"

#include <array>
#include <cstddef>
#include <span>

#include "training/checkpoint/checksum.h"
#include "training/run/parameter_values.h"

namespace tutti::training {

std::vector<RankReport> reports_of_ranks(Replica& replica, uint64_t steps, const Waits& waits) {
  constexpr size_t kNumbers = 7;
  const Staleness stale = replica.staleness();
  const bool is_worker = stale.pushes > 0;
  const std::array<double, kNumbers> own = {
      static_cast<double>(replica.has_servers() ? stale.pushes : static_cast<int64_t>(steps)),
      waits.communication,
      waits.data,
      replica.bytes_sent(),
      is_worker ? 1.0 : 0.0,
      static_cast<double>(stale.largest),
      stale.mean()};
  std::vector<double> all(kNumbers * static_cast<size_t>(replica.world().size()));
  replica.world().all_gather({own.data(), own.size(), DType::f64},
                             {all.data(), all.size(), DType::f64});
  std::vector<RankReport> reports;
  for (size_t i = 0; i < all.size(); i += kNumbers) {
    reports.push_back({.clock = static_cast<uint64_t>(all[i]),
                       .waited_seconds = all[i + 1],
                       .waited_for_data_seconds = all[i + 2],
                       .bytes_sent = all[i + 3]});
    if (all[i + 4] == 0) continue;
    reports.back().staleness = {static_cast<int64_t>(all[i + 5]), all[i + 6]};
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

namespace {

std::string digest_of_rank(Replica& replica, Model& model) {
  ParameterValues values(replica, model);
  replica.finish_values();
  Checksum checksum;
  for (int parameter = 0; parameter < model.parameters().size(); ++parameter) {
    if (!values.has(parameter)) continue;
    if (replica.storage().whole_values()) {
      const Tensor own = model.parameters().at(parameter).value;
      checksum.add({static_cast<const std::byte*>(own.data), own.bytes()});
      continue;
    }
    const ParameterSpec& spec = values.specs()[static_cast<size_t>(parameter)];
    std::vector<float> gathered(static_cast<size_t>(spec.count()));
    values.read(parameter, gathered);
    checksum.add(std::as_bytes(std::span(gathered)));
  }
  return checksum.hex();
}

}  // namespace

std::vector<std::string> digests_of_ranks(Replica& replica, Model& model) {
  constexpr size_t kDigits = 16;
  const std::string own = digest_of_rank(replica, model);
  std::string all(kDigits * static_cast<size_t>(replica.world().size()), ' ');
  replica.world().all_gather({own.data(), kDigits, DType::u8}, {all.data(), all.size(), DType::u8});
  std::vector<std::string> digests;
  for (size_t i = 0; i < all.size(); i += kDigits) digests.push_back(all.substr(i, kDigits));
  return digests;
}

std::string digest_of_settings(Json settings) {
  for (const char* name : {"flush-every", "validate-every", "checkpoint-every"}) {
    settings.erase(name);
  }
  const std::string text = settings.dump();
  return checksum_of(std::as_bytes(std::span(text)));
}

}  // namespace tutti::training
