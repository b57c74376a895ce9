#include "training/setup/flags.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "training/models/registry.h"

namespace tutti::training {
namespace {

constexpr auto kGroup = "Model";

std::string default_of(const Field& field) {
  const Json value = field.get();
  if (field.type() == Field::Type::truth || value.is_null() || value == "") return "";
  std::string text = value.is_string() ? std::string(value) : value.dump();
  if (value.is_array()) text = text.substr(1, text.size() - 2);
  return cat(" (default: ", text, ")");
}

const char* value_name_of(const Field& field) {
  const Field::Traits& traits = field.traits();
  if (!traits.value_name.empty()) return traits.value_name.c_str();
  switch (field.type()) {
    case Field::Type::whole:
    case Field::Type::wholes:
      return "INT";
    case Field::Type::number:
    case Field::Type::numbers:
      return "FLOAT";
    default:
      return "TEXT";
  }
}

Option grouped(const Option& option, const Field& field) {
  return field.traits().group.empty() ? option : option.group(field.traits().group);
}

// A list that is given in several options has the values of all.
void set_or_append(Json& object, const Field& field, Json value) {
  Json& member = object[field.key()];
  if (!field.is_list() || !member.is_array()) {
    member = std::move(value);
  } else {
    for (const Json& one : value) member.push_back(one);
  }
}

struct Flag {
  const Field* field = nullptr;  // of the first of the models that have it
  std::vector<std::pair<std::string, std::vector<std::string>>> meanings;  // and whose they are
};

// In the order in which models name them.
std::vector<Flag> flags_of_models() {
  std::vector<Flag> flags;
  for (const ModelKind& kind : model_kinds()) {
    for (const Field& field : kind.schema->fields()) {
      if (field.traits().flags.empty()) continue;
      auto flag = std::ranges::find_if(
          flags, [&](const Flag& other) { return other.field->key() == field.key(); });
      if (flag == flags.end()) flag = flags.insert(flags.end(), Flag{&field, {}});
      const std::string meaning = field.meaning() + default_of(field);
      auto same =
          std::ranges::find(flag->meanings, meaning, &decltype(flag->meanings)::value_type::first);
      if (same == flag->meanings.end()) {
        same = flag->meanings.insert(same, {meaning, {}});
      }
      same->second.push_back(kind.name);
    }
  }
  return flags;
}

std::string joined(const std::vector<std::string>& words, const std::string& last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? last : ", ") + words[i];
  }
  return text;
}

std::vector<std::string> kinds_with(const std::string& key) {
  std::vector<std::string> names;
  for (const ModelKind& kind : model_kinds()) {
    if (kind.schema->find(key) != nullptr) names.push_back(kind.name);
  }
  return names;
}

}  // namespace

void add_flag(Command command, const Field& field, const std::string& meaning, TakeValue take) {
  const Field::Traits& traits = field.traits();
  if (field.type() == Field::Type::truth) {
    const auto read = [&field, take = std::move(take)](bool on) {
      take(field, on == field.traits().flag_means);
    };
    grouped(command.add_switch(traits.flags, read, meaning), field);
    return;
  }
  const auto read = [&field, take = std::move(take)](const std::vector<std::string>& words) {
    take(field, field.from_words(words));
  };
  const Option option = command.add_words(traits.flags, read, meaning, field.is_list());
  grouped(option, field).type_name(value_name_of(field));
  if (!traits.alone.empty()) option.or_alone(traits.alone);
}

void add_model_flags(Command command, Json& model) {
  std::vector<std::string> kinds;
  for (const ModelKind& kind : model_kinds())
    kinds.push_back(cat(kind.name, " (", kind.meaning, ")"));
  const auto read = [&model](const std::vector<std::string>& words) {
    model["kind"] = model_kind_named(words.at(0)).name;
  };
  command.add_words("--model", read, joined(kinds, " or "), false).type_name("NAME").group(kGroup);
  for (const Flag& flag : flags_of_models()) {
    std::string meaning;
    for (const auto& [text, owners] : flag.meanings) {
      meaning += cat(meaning.empty() ? "" : "; ", joined(owners, ", "), ": ", text);
    }
    add_flag(command, *flag.field, meaning, [&model](const Field& field, Json value) {
      set_or_append(model, field, std::move(value));
    });
  }
}

void refuse_members_of_other_models(const Json& model) {
  const ModelKind& kind = kind_of(model);
  for (const auto& [name, value] : model.items()) {
    if (name == "kind" || kind.schema->find(name) != nullptr) continue;
    const std::vector<std::string> owners = kinds_with(name);
    for (const Flag& flag : flags_of_models()) {
      if (flag.field->key() != name) continue;
      throw UsageError(cat(split(flag.field->traits().flags, ',').front(),
                           " is an option of --model ", joined(owners, " and "), ", not of ",
                           kind.name));
    }
  }
}

}  // namespace tutti::training
