#include "training/data/client_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tests/training/data/folder.h"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;

// Examples whose token is their index.
class Labelled : public DataSet {
 public:
  explicit Labelled(std::vector<uint8_t> labels) : labels_(std::move(labels)) {}
  uint64_t size() const override { return labels_.size(); }
  uint64_t validation_size() const override { return 7; }
  void add(uint64_t example, uint64_t, Batch& batch) const override {
    batch.tokens.push_back(static_cast<int32_t>(example));
  }
  void add_validation(uint64_t example, Batch& batch) const override { add(example, 0, batch); }
  uint64_t fingerprint() const override { return 3; }
  std::span<const uint8_t> labels() const override { return labels_; }

 private:
  std::vector<uint8_t> labels_;
};

std::vector<uint8_t> cycle(int64_t examples, int labels) {
  std::vector<uint8_t> all;
  for (int64_t i = 0; i < examples; ++i) all.push_back(static_cast<uint8_t>(i % labels));
  return all;
}

std::vector<int32_t> examples_of(const DataSet& set) {
  Batch batch;
  for (uint64_t example = 0; example < set.size(); ++example) set.add(example, 0, batch);
  return batch.tokens;
}

TEST(ClientSet, DealsOutEachExampleOnce) {
  const Labelled all(cycle(1000, 10));
  for (const auto& [clients, labels] :
       {std::pair(1, 10), std::pair(5, 2), std::pair(20, 2), std::pair(7, 3), std::pair(3, 10)}) {
    SCOPED_TRACE(::testing::Message() << clients << " clients, " << labels << " labels");
    std::vector<int32_t> taken;
    for (int client = 0; client < clients; ++client) {
      const ClientSet own(all, {.labels = labels, .client = client, .clients = clients});
      const std::vector<int32_t> examples = examples_of(own);
      std::set<uint8_t> found;
      for (const int32_t example : examples)
        found.insert(all.labels()[static_cast<size_t>(example)]);
      EXPECT_EQ(found.size(), static_cast<size_t>(labels));
      EXPECT_EQ(own.validation_size(), 7u);
      EXPECT_EQ(own.fingerprint(), 3u);
      taken.insert(taken.end(), examples.begin(), examples.end());
    }
    std::ranges::sort(taken);
    EXPECT_EQ(taken, examples_of(all));
  }
}

TEST(ClientSet, CutsALabelEvenlyAmongItsClients) {
  const Labelled all(cycle(1000, 10));
  std::map<uint8_t, int> clients_of;
  for (int client = 0; client < 20; ++client) {
    const ClientSet own(all, {.labels = 2, .client = client, .clients = 20});
    std::map<uint8_t, int> examples;
    for (const int32_t example : examples_of(own)) {
      ++examples[all.labels()[static_cast<size_t>(example)]];
    }
    for (const auto& [label, count] : examples) {
      EXPECT_EQ(count, 25);
      ++clients_of[label];
    }
  }
  for (const auto& [label, clients] : clients_of) EXPECT_EQ(clients, 4);
}

TEST(ClientSet, CountsTheLabelsThatThereAre) {
  const Labelled all({9, 4, 9, 4});
  const ClientSet own(all, {.labels = 1, .client = 1, .clients = 2});
  EXPECT_EQ(examples_of(own), (std::vector<int32_t>{0, 2}));
}

TEST(ClientSet, RefusesWhatCannotBeDealtOut) {
  const auto refusal = [](const std::vector<uint8_t>& labels, const ClientShare& share) {
    return error_of([&] { ClientSet(Labelled(labels), share); });
  };
  EXPECT_THAT(refusal({}, {.labels = 2}), HasSubstr("no labels"));
  EXPECT_THAT(refusal(cycle(100, 10), {.labels = 2, .client = 0, .clients = 4}),
              HasSubstr("from 3 to 10"));
  EXPECT_THAT(refusal(cycle(100, 10), {.labels = 11, .client = 0, .clients = 4}),
              HasSubstr("4 clients cannot have 11 of 10 labels each"));
  EXPECT_THAT(refusal(cycle(2, 2), {.labels = 1, .client = 0, .clients = 5}),
              HasSubstr("client 0 of 5 would have no example"));
}

}  // namespace
}  // namespace tutti::training
