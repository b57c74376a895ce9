#include "training/checkpoint/shared_verification.h"

#include <exception>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {

std::vector<std::string> SharedVerification::verify_parts(const std::string& folder) {
  std::string outcome;  // "", or the code and the text of an error: "3 file 2: ..."
  const auto fail = [&](ErrorCode code, const char* text) {
    outcome = cat(static_cast<int>(code), ' ', text);
  };
  try {
    const Checkpoint checkpoint = Checkpoint::open_alone(folder);
    const int files = checkpoint.manifest().world();
    for (int file = group_.rank; file < files; file += group_.size) checkpoint.verify_file(file);
  } catch (const Error& error) {
    fail(error.code(), error.what());
  } catch (const std::exception& error) {
    fail(ErrorCode::internal, error.what());
  }
  return group_.gather_to_first(outcome);
}

void SharedVerification::verify(const Checkpoint& checkpoint) {
  group_.from_first(checkpoint.path());
  for (const std::string& outcome : verify_parts(checkpoint.path())) {
    if (outcome.empty()) continue;
    const size_t space = outcome.find(' ');
    throw Error(static_cast<ErrorCode>(std::stoi(outcome)), outcome.substr(space + 1));
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
