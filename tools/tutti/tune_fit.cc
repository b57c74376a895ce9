// tutti tune --fit: fits the parameters of a cluster to a table of measurements.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file_text.h"
#include "base/text.h"
#include "collectives/cluster/fit.h"
#include "collectives/cluster/measured_table.h"
#include "collectives/cost/gpu_costs.h"
#include "tools/tutti/clusters.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/named.h"

namespace tutti::tool {

namespace {

// Returns the default initial cluster of a fit: the table's GPUs with one InfiniBand card each.
tutti::Cluster prior_of(const MeasuredTable& table) {
  const int gpus = std::ranges::max(table.calls, {}, &MeasuredCall::gpus).gpus;
  const std::string_view gpu = gpu_class_of(table.gpu);
  std::string name = cat(gpus, 'x');
  if (gpu.empty()) {
    name += "GPU, PCIe 16";
  } else {
    name += gpu;
  }
  return load_cluster(cat(name, ", IB ", gpus, "x25"));
}

std::string percent(double part) {
  return std::isnan(part) ? "-" : cat(std::lround(100 * part), '%');
}

std::string collectives_in(const MeasuredTable& table) {
  std::set<std::string> names;
  for (const MeasuredCall& call : table.calls) names.insert(std::string(name(call.collective)));
  std::string text;
  for (const std::string& name : names) text += cat(text.empty() ? "" : ", ", name);
  return text;
}

}  // namespace

int fit_cluster(const FitOptions& o) {
  const std::string text = file_text(o.table, FileKind::graph);
  TableDefaults defaults;
  std::optional<tutti::Cluster> prior;
  if (!o.cluster.empty()) {
    prior = load_cluster(o.cluster);
    defaults.hosts = prior->hosts;
    defaults.gpus = prior->gpus;
  }
  if (!o.collective.empty()) defaults.collective = collective_named(o.collective);
  const MeasuredTable table =
      read_measured_table(text, o.table, defaults,
                          [](const std::string& name) { return any_collective_named(name).first; });
  if (!prior) prior = prior_of(table);
  const int hosts = std::ranges::max(table.calls, {}, &MeasuredCall::hosts).hosts;
  if (hosts > 1 && prior->between.GBps == 0) {
    throw Error(ErrorCode::invalid_argument,
                cat("the table has calls on ", hosts, " hosts, but --cluster '", o.cluster,
                    "' has no network between them"),
                {.remedy = "describe the network: '8xH100, NVLink 450, IB 8x50'"});
  }
  const std::array<double, 3> before = mean_errors(*prior, table.calls);
  tutti::Cluster fitted = fit(*prior, table.calls);
  const std::array<double, 3> after = mean_errors(fitted, table.calls);
  fitted.name = std::filesystem::path(o.table).stem().string();
  fitted.source =
      cat("fitted to ", o.table, ": ", collectives_in(table), ", ", table.calls.size(), " calls");
  const std::string path =
      o.json.empty() ? std::filesystem::path(o.table).replace_extension(".cluster.json").string()
                     : o.json;
  write_file(path, to_json(fitted));
  std::printf("%zu calls of %s; mean error by size, before and after the fit:\n",
              table.calls.size(), collectives_in(table).c_str());
  constexpr std::array<const char*, 3> kSizes = {"below 1 MiB", "1 to 256 MiB", "256 MiB and more"};
  for (size_t i = 0; i < kSizes.size(); ++i) {
    std::printf("  %-18s %6s %6s\n", kSizes[i], percent(before[i]).c_str(),
                percent(after[i]).c_str());
  }
  std::printf("The parameters are in %s: tutti simulate all_reduce --cluster %s --bytes 64M\n",
              path.c_str(), path.c_str());
  return 0;
}

}  // namespace tutti::tool
