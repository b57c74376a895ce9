#include "training/optimizers/registry.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/optimizers/adafactor.h"
#include "training/optimizers/adamw.h"
#include "training/optimizers/adamw8bit.h"
#include "training/optimizers/lamb.h"
#include "training/optimizers/lars.h"
#include "training/optimizers/muon.h"
#include "training/optimizers/sgd.h"
#include "training/optimizers/soap.h"

namespace tutti::training {

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> kinds = {
      adamw_kind(), adamw8bit_kind(), sgd_kind(),       lamb_kind(),
      lars_kind(),  muon_kind(),      adafactor_kind(), soap_kind(),
  };
  return kinds;
}

const OptimizerKind& optimizer_kind_of(const Json& configuration) {
  const Json* const name = configuration.find("name");
  const std::string wanted = name != nullptr && name->is_string() ? std::string(*name) : "";
  const auto kind = std::ranges::find(optimizer_kinds(), wanted, &OptimizerKind::name);
  if (kind != optimizer_kinds().end()) return *kind;
  std::vector<std::string> names;
  std::string list;
  for (const OptimizerKind& known : optimizer_kinds()) {
    names.push_back(known.name);
    list += (list.empty() ? "" : ", ") + known.name;
  }
  const std::string close = nearest(wanted, names);
  throw Error(ErrorCode::invalid_argument,
              cat("unknown optimizer ", in_quotes(wanted),
                  close.empty() ? "" : cat(" (did you mean ", close, "?)")),
              {.where = "optimizer.name", .remedy = "use one of " + list});
}

std::unique_ptr<Optimizer> make_optimizer(const Json& configuration) {
  return optimizer_kind_of(configuration).make(configuration);
}

}  // namespace tutti::training
