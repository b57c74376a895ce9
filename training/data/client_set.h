// The part of a data set that one of several clients has to train on: examples of a few labels.
#pragma once

#include <cstdint>
#include <vector>

#include "training/data/data_set.h"

namespace tutti::training {

struct ClientShare {
  int64_t labels = 0;  // that each client has
  int client = 0;
  int clients = 1;
};

// Labels are dealt out in turn, and the clients that have a label cut its examples evenly: each
// example belongs to one client. Of 10 labels client r of 20 with 2 each has 2r and 2r + 1 modulo
// 10, a quarter of the examples of either. What is held out is the whole set's.
class ClientSet : public DataSet {
 public:
  // `set` outlives it. Throws Error(invalid_argument) for a set without labels, for more labels
  // than it has, for so few that clients would not use all, and for a client without an example.
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
