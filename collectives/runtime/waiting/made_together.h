// How the members that are left, and those that come, make a communicator of their own.
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

// A communicator that its members make when others have died or are to come: all of them then agree
// whether each has made it.
class MadeTogether {
 public:
  MadeTogether(std::shared_ptr<CommunicatorImpl> communicator, std::optional<Error> problem)
      : communicator_(std::move(communicator)), problem_(std::move(problem)) {}

  bool made() const { return !problem_; }
  // Once they have agreed. Throws why this rank has not made it, or that another one has not.
  std::shared_ptr<CommunicatorImpl> take(bool all_have_made_it);

 private:
  std::shared_ptr<CommunicatorImpl> communicator_;
  std::optional<Error> problem_;
};

// Tries to make one of an id, of these ranks of the job, of which this is one, and of an epoch.
using MakeTogether =
    std::function<MadeTogether(uint64_t id, const std::vector<int>& members, uint64_t epoch)>;

}  // namespace tutti::internal
