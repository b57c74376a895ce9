#include "collectives/interchange/resolve.h"

#include <string>

#include "base/error.h"
#include "base/text.h"
#include "collectives/algorithms/hierarchical.h"
#include "collectives/interchange/msccl_import.h"

namespace tutti {

bool is_algorithm_file(std::string_view name) {
  return name.ends_with(".xml") || name.ends_with(".json");
}

const Algorithm& resolve_algorithm(Collective collective, std::string_view name) {
  const Algorithm* found =
      is_algorithm_file(name) ? &import_algorithm(std::string(name)) : parse_hierarchical(name);
  if (found == nullptr) return require_algorithm(collective, name);
  if (found->collective == collective) return *found;
  throw Error(ErrorCode::invalid_argument,
              cat(name, " is an algorithm for ", tutti::name(found->collective), ", not for ",
                  tutti::name(collective)));
}

}  // namespace tutti
