#include "training/core/schema.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/core/choices.h"

namespace tutti {
namespace {

using Type = Field::Type;

[[noreturn]] void refuse(const std::string& problem, const std::string& where = {},
                         const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, problem, {.where = where, .remedy = remedy});
}

const char* wanted(Type type) {
  switch (type) {
    case Type::truth:
      return "true or false";
    case Type::whole:
      return "an integer";
    case Type::number:
      return "a number";
    case Type::text:
      return "a string";
    case Type::wholes:
      return "a list of integers";
    case Type::numbers:
      return "a list of numbers";
    case Type::texts:
      return "a list of strings";
  }
  return "";
}

Type type_of_each(Type list) {
  return list == Type::wholes ? Type::whole : list == Type::numbers ? Type::number : Type::text;
}

[[noreturn]] void refuse_type(Type type, const std::string& value) {
  refuse(cat("expected ", wanted(type), ", not ", value));
}

bool fits(Type type, const Json& value) {
  switch (type) {
    case Type::truth:
      return value.is_boolean();
    case Type::whole:
      return value.is_whole_number();
    case Type::number:
      return value.is_number();
    case Type::text:
      return value.is_string();
    default:
      return value.is_array() && std::all_of(value.begin(), value.end(), [&](const Json& one) {
               return fits(type_of_each(type), one);
             });
  }
}

// Parses a word by type. A number that overflows becomes one that is outside every range.
Json read_word(Type type, const std::string& word) {
  const char* const end = word.data() + word.size();
  if (type == Type::text) return word;
  if (type == Type::truth) {
    if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
    if (word == "false" || word == "0" || word == "no" || word == "off") return false;
    refuse_type(type, in_quotes(word));
  }
  double number = 0;
  const auto parsed = std::from_chars(word.data(), end, number);
  const bool is_number = parsed.ptr == end && parsed.ec != std::errc::invalid_argument;
  if (type == Type::number || !is_number) {
    if (!is_number) refuse(cat("expected a number, not ", in_quotes(word)));
    return parsed.ec == std::errc() ? number : std::numeric_limits<double>::infinity();
  }
  if (const auto whole = parse_number<int64_t>(word)) return *whole;
  if (const auto natural = parse_number<uint64_t>(word)) return *natural;
  refuse_type(type, printable(word, 40));
}

}  // namespace

Field::Field(std::string key, std::string meaning, Type type, std::function<Json()> get,
             std::function<void(const Json&)> set)
    : key_(std::move(key)),
      meaning_(std::move(meaning)),
      type_(type),
      get_(std::move(get)),
      set_(std::move(set)) {
  traits_.flags = "--" + key_.substr(key_.rfind('.') + 1);
  std::ranges::replace(traits_.flags, '_', '-');
}

Field& Field::flag(std::string flags, bool means) {
  traits_.flags = std::move(flags);
  traits_.flag_means = means;
  return *this;
}
Field& Field::alone(std::string value) {
  traits_.alone = std::move(value);
  return *this;
}
Field& Field::by_commas() {
  traits_.by_commas = true;
  return *this;
}
Field& Field::group(std::string name) {
  traits_.group = std::move(name);
  return *this;
}
Field& Field::value_name(std::string name) {
  traits_.value_name = std::move(name);
  return *this;
}
Field& Field::show_default() {
  traits_.shows_default = true;
  return *this;
}
Field& Field::between(double low, double high) {
  low_ = low;
  high_ = high;
  return *this;
}
Field& Field::one_of(std::vector<std::string> choices) {
  choices_ = std::move(choices);
  return value_name("NAME").show_default();
}
Field& Field::role(std::string name) {
  role_ = std::move(name);
  return *this;
}

std::string Field::short_name() const {
  if (!traits_.flags.empty()) {
    const std::string first = split(traits_.flags, ',').front();
    return first.substr(first.find_first_not_of('-'));
  }
  std::string last = key_.substr(key_.rfind('.') + 1);
  std::ranges::replace(last, '_', '-');
  return last;
}

void Field::check(const Json& value) const {
  if (value.is_array()) {
    for (const Json& one : value) check(one);
  } else if (value.is_number()) {
    const double number = value.get<double>();
    if (number >= low_ && number <= high_) return;
    const bool bounded = high_ < 1e15;
    refuse(cat("the number must be ", bounded ? "from " : "at least ", low_,
               bounded ? cat(" to ", static_cast<int64_t>(high_)) : "", ", not ", value.words()));
  } else if (value.is_string() && !choices_.empty()) {
    const std::string problem = choice_problem(value.get<std::string>(), choices_);
    if (!problem.empty()) refuse(problem);
  }
}

Json Field::checked(const Json& value) const {
  if (!value.is_null()) {
    if (!fits(type_, value)) refuse_type(type_, value.words());
    check(value);
  }
  return value;
}

void Field::set(const Json& value) const { set_(checked(value)); }

Json Field::from_words(const std::vector<std::string>& words) const {
  Json value;
  if (is_list()) {
    value = Json::array();
    for (const std::string& word : words) {
      for (const std::string& one :
           traits_.by_commas ? split(word, ',') : std::vector<std::string>{word}) {
        value.push_back(read_word(type_of_each(type_), one));
      }
    }
  } else {
    value = read_word(type_, words.at(0));
  }
  check(value);
  return value;
}

Field& Schema::add(const std::string& key, Type type, std::function<Json()> get,
                   std::function<void(const Json&)> set, const std::string& meaning) {
  Field& field = fields_.emplace_back(key, meaning, type, std::move(get), std::move(set));
  if (type == Type::whole || type == Type::wholes) field.between(0, largest_whole_);
  return field;
}

const Field* Schema::find(std::string_view key) const {
  const auto found = std::ranges::find(fields_, key, &Field::key);
  return found == fields_.end() ? nullptr : &*found;
}

void Schema::read(const Json& json, const std::string& where, const std::string& prefix) const {
  const auto full = [&](const std::string& key) {
    return prefix.empty() ? key : prefix + "." + key;
  };
  const std::function<void(const Json&, const std::string&)> read_object =
      [&](const Json& object, const std::string& inside) {
        if (!object.is_object()) {
          refuse(cat(full(inside), ": expected an object, not ", object.words()), where);
        }
        for (const auto& [name, value] : object.items()) {
          const std::string key = inside.empty() ? name : inside + "." + name;
          const Field* field = find(key);
          if (field != nullptr) {
            try {
              field->set(value);
            } catch (const Error& error) {
              refuse(cat(full(key), ": ", error.what()), where);
            }
            continue;
          }
          const bool is_part = std::ranges::any_of(
              fields_, [&](const Field& other) { return other.key().starts_with(key + "."); });
          if (is_part) {
            read_object(value, key);
            continue;
          }
          std::vector<std::string> names;
          for (const Field& other : fields_) {
            names.push_back(other.key());
            if (inside.empty()) names.push_back(other.key().substr(0, other.key().find('.')));
          }
          const std::string close = nearest(key, names);
          refuse(cat("unknown setting ", printable(full(key)),
                     close.empty() ? "" : cat(" (did you mean ", full(close), "?)")),
                 where);
        }
      };
  read_object(json, "");
}

Json Schema::write() const {
  Json all = Json::object();
  for (const Field& field : fields_) {
    Json value = field.get();
    if (!value.is_null()) set_member(all, field.key(), std::move(value));
  }
  return all;
}

const Json* find_member(const Json& json, std::string_view key) {
  const size_t dot = key.find('.');
  const Json* found = json.find(key.substr(0, dot));
  if (found == nullptr || dot == key.npos) return found;
  return find_member(*found, key.substr(dot + 1));
}

void set_member(Json& json, std::string_view key, Json value) {
  const size_t dot = key.find('.');
  Json& member = json[std::string(key.substr(0, dot))];
  if (dot == key.npos) {
    member = std::move(value);
  } else {
    set_member(member, key.substr(dot + 1), std::move(value));
  }
}

void erase_member(Json& json, std::string_view key) {
  const size_t dot = key.find('.');
  if (dot == key.npos) {
    json.erase(key);
  } else if (json.contains(key.substr(0, dot))) {
    erase_member(json[std::string(key.substr(0, dot))], key.substr(dot + 1));
  }
}

}  // namespace tutti
