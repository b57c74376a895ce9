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

// This rank's attempt to make a communicator after deaths, or with new members. Afterwards all
// members agree on whether all attempts succeeded.
class MadeTogether {
 public:
  MadeTogether(std::shared_ptr<CommunicatorImpl> communicator, std::optional<Error> problem)
      : communicator_(std::move(communicator)), problem_(std::move(problem)) {}

  bool made() const { return !problem_; }
  // Returns the communicator; call it after the agreement. Unless all members have made it, throws
  // this rank's error, or an error that reports that another rank failed.
  std::shared_ptr<CommunicatorImpl> take(bool all_have_made_it);

 private:
  std::shared_ptr<CommunicatorImpl> communicator_;
  std::optional<Error> problem_;
};

// Function that tries to make a communicator with this id and epoch. `members`: ranks of the job,
// including this rank.
using MakeTogether =
    std::function<MadeTogether(uint64_t id, const std::vector<int>& members, uint64_t epoch)>;

}  // namespace tutti::internal
