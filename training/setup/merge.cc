#include "training/setup/merge.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/file_text.h"
#include "base/text.h"
#include "training/core/schema.h"
#include "training/models/registry.h"
#include "training/optimizers/registry.h"

namespace tutti::training {
namespace {

// Pairs of alternative settings: giving one replaces the other.
constexpr std::array<std::pair<const char*, const char*>, 4> kAlternatives = {
    {{"training.steps", "training.epochs"},
     {"training.batch", "training.micro_batches"},
     {"training.sync", "training.average_every"},
     {"optimizer.min_lr", "optimizer.final_fraction"}}};

template <typename Kinds>
void drop_members_of_other_kinds(Json& file, const Json& given, const char* object, const char* tag,
                                 const Kinds& kinds) {
  const std::string key = cat(object, '.', tag);
  const Json* const now = find_member(given, key);
  const Json* const before = find_member(file, key);
  if (now == nullptr || (before != nullptr && *before == *now)) return;
  const Schema* own = nullptr;
  for (const auto& kind : kinds) {
    if (*now == kind.name) own = kind.schema.get();
  }
  if (own == nullptr || !file.contains(object)) return;
  for (const auto& kind : kinds) {
    for (const Field& field : kind.schema->fields()) {
      if (own->find(field.key()) == nullptr) file[object].erase(field.key());
    }
  }
}

void put(Json& into, const Json& object) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) {
      into.erase(name);
    } else if (value.is_object()) {
      if (!into.contains(name)) into[name] = Json::object();
      put(into[name], value);
    } else {
      into[name] = value;
    }
  }
}

}  // namespace

Json read_configuration_file(const std::string& path) {
  try {
    Json all = Json::parse(file_text(path, FileKind::configuration));
    if (all.is_object()) return all;
    throw Error(ErrorCode::invalid_argument, cat("expected an object, not ", all.words()));
  } catch (const Error& error) {
    throw Error(error.code(), cat("not a configuration: ", error.what()),
                {.where = path, .remedy = "use JSON in the format of --print-config"});
  }
}

Json merged(const Json& file, const Json& given) {
  Json all = Json::object();
  put(all, file);  // ignores nulls in the file
  drop_members_of_other_kinds(all, given, "model", "kind", model_kinds());
  drop_members_of_other_kinds(all, given, "optimizer", "name", optimizer_kinds());
  for (const auto& [one, other] : kAlternatives) {
    if (find_member(given, one) != nullptr) erase_member(all, other);
    if (find_member(given, other) != nullptr) erase_member(all, one);
  }
  put(all, given);
  return all;
}

}  // namespace tutti::training
