// Selects the part of a data set on which one of several clients trains: examples of a few labels.
#pragma once

#include <cstdint>
#include <vector>

#include "training/data/data_set.h"

namespace tutti::training {

struct ClientShare {
  int64_t labels = 0;  // number of labels per client
  int client = 0;
  int clients = 1;
};

// The examples of one client. Labels are assigned to clients in turn. The clients that share a
// label divide its examples evenly, so that each example belongs to one client. With 10 labels and
// 20 clients that have 2 labels each, client r has the labels 2r and 2r + 1 (modulo 10), and a
// quarter of the examples of each label. All clients have all held-out examples of the whole set.
class ClientSet : public DataSet {
 public:
  // Selects the examples of a client; `set` must outlive this object. Throws
  // Error(invalid_argument) if the set has no labels or fewer than share.labels, if some labels
  // would have no client, or if this client would have no examples.
  ClientSet(const DataSet& set, const ClientShare& share);

  uint64_t size() const override { return examples_.size(); }
  uint64_t validation_size() const override { return set_.validation_size(); }
  void add(uint64_t example, uint64_t epoch, Batch& batch) const override {
    set_.add(examples_[example], epoch, batch);
  }
  void add_validation(uint64_t example, Batch& batch) const override {
    set_.add_validation(example, batch);
  }
  uint64_t fingerprint() const override { return set_.fingerprint(); }

 private:
  const DataSet& set_;
  std::vector<uint64_t> examples_;  // in ascending order
};

}  // namespace tutti::training
