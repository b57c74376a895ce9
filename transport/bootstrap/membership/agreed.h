// The outcome of an agreement among the members of a communicator (agreement.h), and each member's
// contribution.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/error.h"

namespace tutti {

// The decision of the remaining members of a communicator.
struct Agreed {
  uint64_t flags = 0;       // bitwise AND of all contributions
  std::vector<int> living;  // ranks of the job that took part, in the order of the members
};

// The result of an agreement for one member. It is a value, not an exception, because the thread
// sanitizer reports a race if two threads share an exception.
using AgreementEnd = std::variant<Agreed, Error>;

// Returns the decision, or throws the Error.
Agreed agreed_in(AgreementEnd end);

// A member's contribution to an agreement.
struct Contribution {
  std::vector<int> members;  // ranks of the job, the same on all members
  uint64_t flags = 0;
  // True if the agreement changes the membership. Then hosts that cannot reach each other for data
  // are separated.
  bool separates = false;
};

}  // namespace tutti
