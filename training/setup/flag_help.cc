#include "training/setup/flag_help.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tutti::training {
namespace {

std::string default_of(const Field& field) {
  const Json value = field.get();
  if (field.type() == Field::Type::truth || value.is_null() || value == "") return "";
  if (value.is_array()) return value.empty() ? "" : value.dump().substr(1, value.dump().size() - 2);
  return value.is_string() || value.is_whole_number() ? value.words() : cat(value.get<double>());
}

std::string plain(const std::string& text) {
  std::string all = text;
  std::erase(all, '"');
  return all;
}

// A set of model kinds that has a name in the help.
struct ModelGroup {
  const char* name;
  std::vector<std::string> kinds;
};

// Returns the groups, the largest first. A group consists of the kinds with a characteristic field.
const std::vector<ModelGroup>& model_groups() {
  static const std::vector<ModelGroup> groups = [] {
    const auto with = [](const char* key) { return model_settings().names_with(key); };
    return std::vector<ModelGroup>{{"text models", with("vocabulary")},
                                   {"transformers", with("heads")},
                                   {"Llama family", with("rope_base")},
                                   {"MoE models", with("experts")},
                                   {"image models", with("height")}};
  }();
  return groups;
}

// Returns names of kinds for the help. If `names` has all kinds of a group, the group's name
// replaces them: "mlp, transformers". Groups with an index below `first_group` are not used.
std::string in_groups(std::vector<std::string> names, size_t first_group = 0) {
  for (size_t i = first_group; i < model_groups().size(); ++i) {
    const ModelGroup& group = model_groups()[i];
    const auto is_named = [&](const std::string& kind) {
      return std::ranges::find(names, kind) != names.end();
    };
    if (group.kinds.size() < 2 || !std::ranges::all_of(group.kinds, is_named)) continue;
    const auto at = std::ranges::find(names, group.kinds.front());
    *at = group.name;
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::find(group.kinds, name) != group.kinds.end();
    });
  }
  return joined(names, ", ");
}

// Values, each with the kinds that have it.
using Sharing = std::vector<std::pair<std::string, std::vector<std::string>>>;

void add(Sharing& sharing, const std::string& value, const std::string& kind) {
  const auto same =
      std::ranges::find_if(sharing, [&](const auto& one) { return one.first == value; });
  if (same == sharing.end()) {
    sharing.push_back({value, {kind}});
  } else {
    same->second.push_back(kind);
  }
}

// Returns the default or, if it depends on the model, "0.01 (0.1 for transformers)".
std::string default_of(const KindSettings::Kind& kind, const Field& field) {
  const std::string usual = plain(default_of(field));
  Sharing values;  // defaults, each with the models that have it
  for (const auto& [model, suits] : kind.suits) {
    const Json* const suited = suits.find(field.key());
    add(values, suited != nullptr ? cat(suited->get<double>()) : usual, model);
  }
  if (values.size() < 2) return values.empty() ? usual : values[0].first;
  std::vector<std::string> others;
  for (size_t i = 1; i < values.size(); ++i) {
    others.push_back(cat(values[i].first, " for ", in_groups(values[i].second)));
  }
  return cat(values[0].first, " (", joined(others, "; "), ")");
}

// Returns each default with its kinds: "1 for mlp; 4 for transformers". If all `owners` have the
// same default, returns it alone.
std::string in_words(const Sharing& defaults, const std::vector<std::string>& owners) {
  if (defaults.size() == 1 && defaults[0].second == owners) return defaults[0].first;
  std::vector<std::string> texts;
  for (const auto& [value, kinds] : defaults) {
    texts.push_back(cat(value, " for ", in_groups(kinds)));
  }
  return joined(texts, "; ");
}

}  // namespace

std::string joined(const std::vector<std::string>& words, const char* separator, const char* last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? last : separator) + words[i];
  }
  return text;
}
std::string joined(const std::vector<std::string>& words, const char* separator) {
  return joined(words, separator, separator);
}

std::string meaning_of(const Field& field) {
  const std::string value = field.traits().shows_default ? plain(default_of(field)) : "";
  return field.meaning() + (value.empty() ? "" : cat(" (default: ", value, ")"));
}

std::string meaning_of(const KindSettings& settings, const std::string& key) {
  Sharing meanings, defaults;
  for (const KindSettings::Kind& kind : settings.kinds) {
    const Field* const field = kind.schema->find(key);
    if (field == nullptr) continue;
    add(meanings, field->meaning(), kind.name);
    const std::string value = default_of(kind, *field);
    if (!value.empty()) add(defaults, value, kind.name);
  }
  std::string text;
  for (const auto& [meaning, owners] : meanings) {
    text += cat(text.empty() ? "" : "; ", in_groups(owners), ": ", meaning);
  }
  const std::string values = in_words(defaults, settings.names_with(key));
  return text + (values.empty() ? "" : cat(" (default: ", values, ")"));
}

std::string model_groups_in_words() {
  std::vector<std::string> texts;
  for (size_t i = 0; i < model_groups().size(); ++i) {
    const ModelGroup& group = model_groups()[i];
    texts.push_back(cat(group.name, " (", in_groups(group.kinds, i + 1), ")"));
  }
  return joined(texts, ", ");
}

}  // namespace tutti::training
