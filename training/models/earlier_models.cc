#include "training/models/earlier_models.h"

#include "base/error.h"
#include "base/text.h"
#include "training/models/registry.h"

namespace tutti::training {
namespace {

// "1" is yes, of what is yes or no; "1,2" is a list.
Json value_of(const Field& field, const std::string& text) {
  return field.from_words(field.is_list() ? split(text, ',') : std::vector<std::string>{text});
}

}  // namespace

Json model_of_earlier(const std::string& text) {
  const std::vector<std::string> words = split(text, ' ');
  if (words.empty()) return text;
  const std::string name = words.front() == "gpt" ? "gpt2" : words.front();
  Json model = {{"kind", name}};
  try {
    const ModelKind& kind = model_kind_named(name);
    for (size_t i = 1; i < words.size(); ++i) {
      const size_t equals = words[i].find('=');
      const Field* const field = kind.schema->find(words[i].substr(0, equals));
      if (field == nullptr || equals == std::string::npos) return text;
      model[field->key()] = value_of(*field, words[i].substr(equals + 1));
    }
    return kind.complete(model);
  } catch (const Error&) {
    return text;
  }
}

}  // namespace tutti::training
