#include "training/checkpoint/shared_verification.h"

#include "base/error.h"

namespace tutti::training {

std::vector<std::string> SharedVerification::verify_parts(const std::string& folder) {
  std::string outcome;
  try {
    const Checkpoint checkpoint = Checkpoint::open_alone(folder);
    const int files = checkpoint.manifest().world();
    for (int file = group_.rank; file < files; file += group_.size) checkpoint.verify_file(file);
  } catch (const std::exception& error) {
    outcome = error.what();
  }
  return group_.gather_to_first(outcome);
}

void SharedVerification::verify(const Checkpoint& checkpoint) {
  group_.from_first(checkpoint.path());
  for (const std::string& outcome : verify_parts(checkpoint.path())) {
    if (!outcome.empty()) throw Error(ErrorCode::invalid_argument, outcome);
  }
}

void SharedVerification::finish() { group_.from_first(""); }

void SharedVerification::serve() {
  for (;;) {
    const std::string folder = group_.from_first("");
    if (folder.empty()) return;
    verify_parts(folder);
  }
}

}  // namespace tutti::training
