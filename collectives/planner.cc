#include "collectives/planner.h"

#include "base/error.h"
#include "base/text.h"

namespace tutti {

const Algorithm& Planner::choose(const Wanted& wanted) {
  for (const Algorithm* candidate : algorithms_for(wanted.collective)) {
    if (candidate->grade < wanted.at_least || (wanted.direct && !candidate->direct)) continue;
    if (candidate->supports(shape_).empty()) return *candidate;
  }
  throw Error(ErrorCode::unsupported,
              cat("no algorithm for ", name(wanted.collective), " runs on ", shape_.ranks, " ranks"));
}

}  // namespace tutti
