// Tests predictions against published nccl-tests tables, if they are present. Parameters are the
// published figures of a system, or fitted to every third size of a table.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/cluster/fit.h"
#include "collectives/cluster/measured_table.h"
#include "collectives/cluster/predict.h"
#include "tests/support/test_data.h"

namespace tutti {
namespace {

struct Published {
  std::string name;
  MeasuredTable table;
};

Collective named(const std::string& name) {
  return name == "alltoall" ? Collective::all_to_all : parse_collective(name).value();
}

// Returns a table for each system, collective and setting. Its name consists of the first seven
// columns without the source.
std::vector<Published> tables_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string header;
  std::getline(in, header);
  std::map<std::string, std::string> rows;
  for (std::string line; std::getline(in, line);) {
    const size_t quote = line.find('"');
    size_t begin = line.find(',') + 1;
    size_t end = quote == begin ? line.find('"', begin + 1) : begin;
    for (int column = 0; column < 6; ++column) end = line.find(',', end) + 1;
    rows[line.substr(begin, end - 1 - begin)] += line + "\n";
  }
  std::vector<Published> tables;
  for (const auto& [name, lines] : rows) {
    tables.push_back(
        {name, read_measured_table(header + "\n" + lines, file.string(), {.gpus = 8}, named)});
  }
  return tables;
}

// Returns the predefined cluster for this system; null if the table does not identify one.
std::optional<std::string> preset_of(const std::string& name) {
  const std::pair<const char*, const char*> known[] = {
      {"single A100", "dgx-a100"}, {"8x H200", "p5en"}, {"p6-b200", "p6-b200"}, {"p5.48", "p5"}};
  for (const auto& [part, cluster] : known) {
    if (name.find(part) != name.npos) return cluster;
  }
  return std::nullopt;
}

// Errors of predictions, indexed by PredictionErrors::size_class().
struct Errors {
  std::array<std::vector<double>, 3> parts;
  int covered = 0;
  int all = 0;

  void add(const Cluster& cluster, const MeasuredCall& call) {
    Cluster shaped = cluster;
    shaped.hosts = call.hosts;
    shaped.gpus = call.gpus;
    const ClusterPrediction p = predict(shaped, call.collective, call.bytes);
    parts[PredictionErrors::size_class(call.bytes)].push_back(std::abs(p.time_us / call.us - 1));
    covered += static_cast<int>(p.interval_us.low <= call.us && call.us <= p.interval_us.high);
    ++all;
  }
  void add(const Errors& other) {
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].insert(parts[i].end(), other.parts[i].begin(), other.parts[i].end());
    }
    covered += other.covered;
    all += other.all;
  }
  double mean(size_t i) const {
    return std::accumulate(parts[i].begin(), parts[i].end(), 0.0) /
           static_cast<double>(parts[i].size());
  }
  double coverage() const { return static_cast<double>(covered) / all; }
  std::string text() const {
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) {
      text += parts[i].empty() ? "     -" : cat(" ", std::lround(100 * mean(i)), "%");
    }
    return cat(text, ", in the interval ", std::lround(100 * coverage()), "%");
  }
};

class PublishedTables : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = testing::test_data("perf");
    if (folder.empty()) GTEST_SKIP() << testing::kNoTestData;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().string().find("tuning_choice") != std::string::npos) continue;
      for (Published& table : tables_of(entry.path())) tables_.push_back(std::move(table));
    }
    ASSERT_GT(tables_.size(), 20u);
  }

  std::vector<Published> tables_;
};

TEST_F(PublishedTables, ASystemsPublishedFiguresPredictThem) {
  Errors all;
  for (const Published& table : tables_) {
    const std::optional<std::string> preset = preset_of(table.name);
    if (!preset) continue;
    Errors errors;
    for (const MeasuredCall& call : table.table.calls) errors.add(load_cluster(*preset), call);
    std::printf("%-70.70s%s\n", table.name.c_str(), errors.text().c_str());
    all.add(errors);
  }
  std::printf("preset:%s\n", all.text().c_str());
  EXPECT_LE(all.mean(2), 0.24);
  EXPECT_LE(all.mean(1), 0.5);
  EXPECT_LE(all.mean(0), 0.8);
  EXPECT_GE(all.coverage(), 0.85);
}

TEST_F(PublishedTables, AFitToOneSizeInThreePredictsTheOthers) {
  Errors all;
  for (const Published& table : tables_) {
    std::vector<MeasuredCall> some;
    std::vector<MeasuredCall> others;
    for (size_t i = 0; i < table.table.calls.size(); ++i) {
      (i % 3 == 0 ? some : others).push_back(table.table.calls[i]);
    }
    const std::optional<std::string> preset = preset_of(table.name);
    const bool is_pcie = table.name.find("PCIe") != table.name.npos;
    const Cluster fitted =
        fit(load_cluster(preset.value_or(is_pcie ? "8xGPU, PCIe 16, IB 12.5"
                                                 : "8xA100, NVLink 300, IB 4x25")),
            some);
    Errors errors;
    for (const MeasuredCall& call : others) errors.add(fitted, call);
    std::printf("%-70.70s%s\n", table.name.c_str(), errors.text().c_str());
    all.add(errors);
  }
  std::printf("fitted:%s\n", all.text().c_str());
  EXPECT_LE(all.mean(2), 0.12);
  EXPECT_LE(all.mean(1), 0.25);
  EXPECT_LE(all.mean(0), 0.4);
  EXPECT_GE(all.coverage(), 0.85);
  EXPECT_LE(all.coverage(), 0.95);
}

}  // namespace
}  // namespace tutti
