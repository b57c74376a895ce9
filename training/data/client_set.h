// The part of a data set that one of several clients trains on: examples of a few labels.
#pragma once

#include <cstdint>
#include <vector>

#include "training/data/data_set.h"

namespace tutti::training {

struct ClientShare {
  int64_t labels = 0;  // labels per client
  int client = 0;
  int clients = 1;
};

// Labels are assigned in turn, and the clients that share a label divide its examples evenly: each
// example belongs to one client. With 10 labels, client r of 20 with 2 labels each has 2r and 2r +
// 1 modulo 10, and a quarter of the examples of each. Held-out examples are those of the whole set.
class ClientSet : public DataSet {
 public:
  // `set` must outlive it. Throws Error(invalid_argument) for a set without labels, for more labels
  // than it has, for so few that some labels would be unused, and for a client without examples.
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
