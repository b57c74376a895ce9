// Verifies the files of a step on all ranks of a job, each file on one of them:
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

  // Rank 0: reads its part of the files while the others read theirs. Throws Error for the first
  // file that is not whole, as Checkpoint::verify_alone() does. Blocks; any number of times.
  void verify(const Checkpoint& checkpoint);
  // Rank 0: the other ranks return from serve().
  void finish();
  // Other ranks: reads files until rank 0 has finished. Blocks. Throws where a rank is lost.
  void serve();

 private:
  // Collective. Returns on rank 0 what each rank found: "", or why a file is not whole.
  std::vector<std::string> verify_parts(const std::string& folder);

  Group group_;
};

}  // namespace tutti::training
