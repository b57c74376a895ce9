// How surviving and joining members make a new communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tutti::internal {

class CommunicatorImpl;

// A communicator made after deaths or before members join: all members agree on whether each of
// them succeeded in making it.
class MadeTogether {
 public:
  MadeTogether(std::shared_ptr<CommunicatorImpl> communicator, std::optional<Error> problem)
      : communicator_(std::move(communicator)), problem_(std::move(problem)) {}

  bool made() const { return !problem_; }
  // Returns the communicator; call it after the agreement. Throws this rank's failure, or an error
  // that says that another rank failed.
  std::shared_ptr<CommunicatorImpl> take(bool all_have_made_it);

 private:
  std::shared_ptr<CommunicatorImpl> communicator_;
  std::optional<Error> problem_;
};

// Function that tries to make a communicator with this id and epoch from these ranks of the job,
// this rank included.
using MakeTogether =
    std::function<MadeTogether(uint64_t id, const std::vector<int>& members, uint64_t epoch)>;

}  // namespace tutti::internal
