// The agreements among the members of a communicator, in their order, and how members change:
//
//   agreement n       who is left?                               -> these
//                     each of these makes its part of what they continue with
//   agreement n + 1   has each of these made it?                 -> all have, or not
//                     others are left than after n: again, with agreement n + 2
//
// Each agreement is among those that the one before has named. An agreement can fail on one rank
// (timeout) and succeed on others. Its number is used only once it has succeeded: a rank that calls
// again takes part in the same agreement, with the part that it has made already. If it began with
// agreement n again, the others would take its answer to the first question for one to the second.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "transport/bootstrap/control/control.h"

namespace tutti::internal {

// `Made`: a rank's part. Its made() is false if the rank could not make it.
template <typename Made>
class MemberChanges {
 public:
  // The agreement of that number. Returns its decision, or throws.
  using Agree = std::function<Agreed(uint32_t number, const Contribution& contribution)>;
  // What this rank gives to the first question.
  using Flags = std::function<uint64_t()>;
  // This rank's part for those that are left. Nothing: they do not continue.
  using Make = std::function<std::optional<Made>(const Agreed& left)>;
  struct Changed {
    Made made;
    bool by_all = false;  // every one of them has made its part
  };

  // `members`: ranks of the job.
  explicit MemberChanges(std::vector<int> members) : members_(std::move(members)) {}

  // Those that the last agreement has named.
  const std::vector<int>& members() const { return members_; }
  uint32_t agreements() const { return agreements_; }
  // A change has failed between its two questions, and may be called again.
  bool unfinished() const { return part_.has_value(); }
  // Nobody will call again: drops this rank's part.
  void abandon() { part_.reset(); }

  // An agreement that changes nothing. Throws Error(invalid_argument) between the two questions.
  Agreed agree(uint64_t flags, const Agree& agree) {
    if (part_) {
      throw Error(ErrorCode::invalid_argument, "a change of members has failed half-way",
                  {.remedy = "call shrink() or grow() again, which continues it"});
    }
    return next({.members = members_, .flags = flags}, agree);
  }

  // Nothing if `make` has returned nothing.
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
