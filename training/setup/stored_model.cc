#include "training/setup/stored_model.h"

#include <string>

#include "base/error.h"
#include "training/core/schema.h"
#include "training/language/model_source.h"

namespace tutti::training {
namespace {

// Empty where it is not said.
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
    return {};  // there may be nothing yet; and what is damaged is told by whoever resumes it
  }
}

}  // namespace

Json stored_model(const Json& run) {
  const std::string initial = text_at(run, "checkpoint.initial");
  // A run that goes on has what it began with, which may be gone since.
  Json stored = model_in_directory(run);
  if (!stored.is_object() && !initial.empty()) stored = open_model(initial).configuration;
  const std::string kind = text_at(run, "model.kind");
  if (!stored.is_object() || (!kind.empty() && stored.at("kind") != kind)) return {};
  return stored;
}

}  // namespace tutti::training
