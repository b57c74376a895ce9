// Agreements among the members of a communicator, in order, and changes of membership:
//
//   agreement n       which members are alive?                   -> a set of members
//                     each member of the set makes its part of the next communicator
//   agreement n + 1   has each member of the set succeeded?      -> yes or no
//                     if the set shrank since agreement n: repeat with agreement n + 2
//
// Each agreement is among the members that the previous agreement named. An agreement can fail on
// one rank (timeout) and succeed on others. A rank's count of agreements grows only on success: a
// rank that calls again takes part in the agreement that failed, and keeps the part that it already
// made. If that rank restarted at agreement n instead, the others would mistake its answer to the
// first question for an answer to the second.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "transport/bootstrap/control/control.h"

namespace tutti::internal {

// Changes of one communicator. `Made` is a rank's part; Made::made() returns false if the rank
// failed to make it.
template <typename Made>
class MemberChanges {
 public:
  // Function that runs the agreement with this number. Returns its decision or throws.
  using Agree = std::function<Agreed(uint32_t number, const Contribution& contribution)>;
  // Function that returns this rank's flags for the first question.
  using Flags = std::function<uint64_t()>;
  // Function that makes this rank's part for the surviving members; returns nullopt to end the
  // change without a second question.
  using Make = std::function<std::optional<Made>(const Agreed& left)>;
  struct Changed {
    Made made;
    bool by_all = false;  // true: every member has made its part
  };

  // Starts before the first agreement. `members`: the ranks of the job that it is among.
  explicit MemberChanges(std::vector<int> members) : members_(std::move(members)) {}

  // Returns the members named by the last agreement.
  const std::vector<int>& members() const { return members_; }
  uint32_t agreements() const { return agreements_; }
  // Returns true if a change failed between its two questions and may be called again.
  bool unfinished() const { return part_.has_value(); }
  // Drops this rank's part, because the change will not be called again.
  void abandon() { part_.reset(); }

  // Runs an agreement without a change. Throws Error(invalid_argument) if unfinished().
  Agreed agree(uint64_t flags, const Agree& agree) {
    if (part_) {
      throw Error(ErrorCode::invalid_argument, "a membership change failed before it completed",
                  {.remedy = "call shrink() or grow() again to complete it"});
    }
    return next({.members = members_, .flags = flags}, agree);
  }

  // Runs a change. Returns nullopt if `make` returned nullopt.
  std::optional<Changed> change(const Flags& flags, const Agree& agree, const Make& make) {
    for (;;) {
      if (!part_) {
        part_ = make(next({.members = members_, .flags = flags(), .separates = true}, agree));
        if (!part_) return std::nullopt;
      }
      const std::vector<int> left = members_;
      const uint64_t answer = part_->made() ? ~uint64_t{0} : 0;
      const Agreed agreed = next({.members = left, .flags = answer}, agree);
      Changed changed{std::move(*part_), agreed.flags != 0};
      part_.reset();
      if (agreed.living == left) return changed;
    }
  }

 private:
  Agreed next(const Contribution& contribution, const Agree& agree) {
    Agreed agreed = agree(agreements_ + 1, contribution);
    ++agreements_;
    members_ = agreed.living;
    return agreed;
  }

  std::vector<int> members_;
  uint32_t agreements_ = 0;
  std::optional<Made> part_;
};

}  // namespace tutti::internal
