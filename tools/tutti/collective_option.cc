#include "tools/tutti/collective_option.h"

#include "base/error.h"
#include "base/text.h"

namespace tutti::tool {

Collective collective_named(const std::string& wanted) {
  std::string names;
  for (const Collective collective : kCollectivesWithAlgorithms) {
    if (wanted == name(collective)) return collective;
    names += cat(names.empty() ? "" : ", ", name(collective));
  }
  throw Error(ErrorCode::invalid_argument, cat("there is no collective '", wanted, "'"),
              {.remedy = cat("use one of ", names)});
}

}  // namespace tutti::tool
