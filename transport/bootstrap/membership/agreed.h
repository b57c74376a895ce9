// The outcome of an agreement among the members of a communicator (agreement.h), and what each
// member contributes to it.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/error.h"

namespace tutti {

// The decision of the members of a communicator that are left.
struct Agreed {
  uint64_t flags = 0;       // the bits that all of them have given
  std::vector<int> living;  // of the job, in the order of the members: those that took part
};

// How an agreement has ended for a member: a value, since two threads that share an exception look
// like a race to the thread sanitizer.
using AgreementEnd = std::variant<Agreed, Error>;

// Throws the Error if it has failed.
Agreed agreed_in(AgreementEnd end);

// A member's part in an agreement.
struct Contribution {
  std::vector<int> members;  // ranks of the job, alike on all members
  uint64_t flags = 0;
  // The agreement changes who is a member: hosts that cannot reach each other for data are
  // separated.
  bool separates = false;
};

}  // namespace tutti
