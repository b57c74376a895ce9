#include "collectives/interchange/resolve.h"

#include <string>

#include "base/error.h"
#include "base/text.h"
#include "collectives/interchange/msccl_import.h"

namespace tutti {

bool is_algorithm_file(std::string_view name) { return name.ends_with(".xml"); }

const Algorithm& resolve_algorithm(Collective collective, std::string_view name) {
  if (!is_algorithm_file(name)) return require_algorithm(collective, name);
  const Algorithm& imported = import_msccl(std::string(name));
  if (imported.collective == collective) return imported;
  throw Error(ErrorCode::invalid_argument,
              cat(name, " holds an algorithm for ", tutti::name(imported.collective), ", not for ",
                  tutti::name(collective)));
}

}  // namespace tutti
