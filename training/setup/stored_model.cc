#include "training/setup/stored_model.h"

#include <string>

#include "base/error.h"
#include "training/core/schema.h"
#include "training/language/model_source.h"

namespace tutti::training {
namespace {

// Returns the text of a setting; empty if it is missing.
std::string text_at(const Json& run, std::string_view key) {
  const Json* const value = find_member(run, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

Json model_in_directory(const Json& run) {
  const std::string directory = text_at(run, "checkpoint.directory");
  if (directory.empty() || text_at(run, "checkpoint.resume").empty()) return {};
  try {
    return open_model(directory).configuration;
  } catch (const Error&) {
    return {};  // there may be no run yet; resuming reports a damaged one
  }
}

}  // namespace

Json stored_model(const Json& run) {
  const std::string initial = text_at(run, "checkpoint.initial");
  // A resumed run has its parameters already, and the file of the initial ones may no longer exist.
  Json stored = model_in_directory(run);
  if (!stored.is_object() && !initial.empty()) stored = open_model(initial).configuration;
  const std::string kind = text_at(run, "model.kind");
  if (!stored.is_object() || (!kind.empty() && stored.at("kind") != kind)) return {};
  return stored;
}

}  // namespace tutti::training
