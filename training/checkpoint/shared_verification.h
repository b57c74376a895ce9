// Verifies a step's files on all ranks of a job; each file is read by one rank:
//
//   rank 0   verify(step 40)            finish()
//   rank 1   serve() . . verifies . . . . returns
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "training/checkpoint/checkpoint.h"
#include "training/core/group.h"

namespace tutti::training {

class SharedVerification {
 public:
  explicit SharedVerification(Group group) : group_(std::move(group)) {}

  // On rank 0: verifies its part of the files while the other ranks verify theirs. If files are
  // incomplete or damaged, throws the error of the lowest rank that found one. Blocks. May be
  // called repeatedly.
  void verify(const Checkpoint& checkpoint);
  // On rank 0: makes the other ranks return from serve().
  void finish();
  // On all other ranks: takes part in each verify() until rank 0 calls finish(). Blocks. Throws if
  // a rank dies.
  void serve();

 private:
  // Collective. Returns the results of all ranks on rank 0: "" for a rank whose files are good,
  // otherwise the code and the text of the error.
  std::vector<std::string> verify_parts(const std::string& folder);

  Group group_;
};

}  // namespace tutti::training
