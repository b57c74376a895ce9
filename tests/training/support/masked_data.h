// The text of small runs, with some ignored targets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "tests/training/support/tiny_run.h"
#include "training/data/data_set.h"

namespace tutti::training::testing {

// Returns the number of targets to ignore at the start of an example.
using Ignored = int64_t (*)(uint64_t example);

class MaskedData : public DataSet {
 public:
  explicit MaskedData(Ignored ignored) : ignored_(ignored) {}
  uint64_t size() const override { return whole_->size(); }
  uint64_t validation_size() const override { return whole_->validation_size(); }
  void add(uint64_t example, uint64_t epoch, Batch& batch) const override {
    whole_->add(example, epoch, batch);
    mask(example, batch);
  }
  void add_validation(uint64_t example, Batch& batch) const override {
    whole_->add_validation(example, batch);
    mask(example, batch);
  }
  uint64_t fingerprint() const override { return whole_->fingerprint(); }

 private:
  void mask(uint64_t example, Batch& batch) const {
    std::fill_n(batch.targets.end() - kTinyContext, ignored_(example), -100);
  }

  std::unique_ptr<DataSet> whole_ = tiny_data();
  Ignored ignored_;
};

}  // namespace tutti::training::testing
