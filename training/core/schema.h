// Schema of a configuration: a table of fields with names, descriptions and limits. Each field
// refers to a C++ value, which is read from JSON or from the words of a command line and written as
// JSON. Files, options, the log and comparisons of configurations use the same table.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"

namespace tutti {

// One value of a configuration. Each setter returns the field itself, so that calls can be chained.
class Field {
 public:
  enum class Type { truth, whole, number, text, wholes, numbers, texts };
  // Properties for command lines and for comparisons of configurations.
  struct Traits {
    // option of the field: "--lr", or several: "--micro-batches,--accumulate"; empty: none
    std::string flags;
    bool flag_means = true;  // value that the flag of a boolean sets (--no-bias: false)
    std::string alone;       // value of an option that is given without a value
    bool by_commas = false;  // true if the option takes a list as one word: A,B
    std::string group;       // heading under which the help lists the option
    std::string value_name;  // placeholder of the value in the help: FILE
    bool shows_default = false;
  };

  Field(std::string key, std::string meaning, Type type, std::function<Json()> get,
        std::function<void(const Json&)> set);

  Field& flag(std::string flags, bool means = true);
  Field& alone(std::string value);
  Field& by_commas();
  Field& group(std::string name);
  Field& value_name(std::string name);
  Field& show_default();
  // Sets the limits of a number, or of each number in a list. The default lower limit is 0.
  Field& between(double low, double high);
  Field& at_least(double low) { return between(low, high_); }
  // Sets the allowed values of a text.
  Field& one_of(std::vector<std::string> choices);
  // Sets a tag for code that compares configurations; that code defines the meaning of the tag.
  Field& role(std::string name);

  const std::string& key() const { return key_; }
  const std::string& meaning() const { return meaning_; }
  const Traits& traits() const { return traits_; }
  Type type() const { return type_; }
  bool is_list() const { return type_ >= Type::wholes; }
  // Returns the allowed values of a text; nothing if all are allowed.
  const std::vector<std::string>& choices() const { return choices_; }
  const std::string& role() const { return role_; }
  // Returns the name for messages: the option without its dashes, or the key in the same form.
  std::string short_name() const;

  // Returns the value; null for an optional without a value.
  Json get() const { return get_(); }
  // Sets the value. Null clears an optional and leaves other values unchanged. Throws
  // Error(invalid_argument) that states what is expected.
  void set(const Json& value) const;
  // Returns `value` if set() would accept it; otherwise throws as set() does.
  Json checked(const Json& value) const;
  // Parses the words of a command line into JSON, by the field's type. Throws
  // Error(invalid_argument) for words that do not parse.
  Json from_words(const std::vector<std::string>& words) const;

 private:
  void check(const Json& value) const;

  std::string key_;
  std::string meaning_;
  Type type_;
  std::function<Json()> get_;
  std::function<void(const Json&)> set_;
  Traits traits_;
  double low_ = 0;
  double high_ = std::numeric_limits<double>::max();
  std::vector<std::string> choices_;
  std::string role_;
};

// A list of named fields. A name with dots refers to a nested object: "optimizer.lr" is the member
// "lr" of "optimizer".
class Schema {
 public:
  // Creates an empty schema. Integers may be at most `largest_whole` unless a field sets another
  // limit, so that products of sizes do not overflow.
  explicit Schema(double largest_whole = std::numeric_limits<double>::max())
      : largest_whole_(largest_whole) {}
  // Adds a field for the variable `value`, which must outlive the schema: a bool, a number, a
  // std::string, a std::vector of numbers or strings, or a std::optional of one of these. `meaning`
  // is the description.
  template <typename T>
  Field& add(const std::string& key, T& value, const std::string& meaning);
  // Adds a field for an enumeration; `names` maps texts to its values.
  template <typename E>
  Field& add(const std::string& key, E& value, std::vector<std::pair<std::string, E>> names,
             const std::string& meaning);

  // Adds a field for a value that is not a single variable. `set` throws Error(invalid_argument)
  // that states what is expected.
  Field& add(const std::string& key, Field::Type type, std::function<Json()> get,
             std::function<void(const Json&)> set, const std::string& meaning);

  const std::deque<Field>& fields() const { return fields_; }
  std::deque<Field>& fields() { return fields_; }
  const Field* find(std::string_view key) const;  // Returns nullptr for an unknown key.

  // Sets the fields that `json` contains and leaves the others unchanged. Throws
  // Error(invalid_argument) for a member that is not a field, suggesting the nearest name, and for
  // a value of the wrong type or out of range. Errors mention `where`, the source of `json`, and
  // `prefix`, the name of the object.
  void read(const Json& json, const std::string& where = {}, const std::string& prefix = {}) const;
  // Returns all fields that have a value as JSON.
  Json write() const;

 private:
  template <typename T>
  static constexpr Field::Type type_of();
  template <typename T>
  struct Optional : std::false_type {};
  template <typename T>
  struct Optional<std::optional<T>> : std::true_type {};

  double largest_whole_;
  std::deque<Field> fields_;
};

// Finds a nested member of an object by its name with dots. Returns nullptr if it is missing.
const Json* find_member(const Json& json, std::string_view key);
// Sets a nested member of an object by its name with dots. Creates missing objects on the way.
void set_member(Json& json, std::string_view key, Json value);
void erase_member(Json& json, std::string_view key);

template <typename T>
constexpr Field::Type Schema::type_of() {
  using Type = Field::Type;
  if constexpr (Optional<T>::value) {
    return type_of<typename T::value_type>();
  } else if constexpr (std::is_same_v<T, bool>) {
    return Type::truth;
  } else if constexpr (std::is_integral_v<T>) {
    return Type::whole;
  } else if constexpr (std::is_floating_point_v<T>) {
    return Type::number;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return Type::text;
  } else if constexpr (std::is_same_v<typename T::value_type, std::string>) {
    return Type::texts;
  } else {
    return std::is_integral_v<typename T::value_type> ? Type::wholes : Type::numbers;
  }
}

template <typename T>
Field& Schema::add(const std::string& key, T& value, const std::string& meaning) {
  constexpr Field::Type kType = type_of<T>();
  const auto get = [&value]() -> Json {
    if constexpr (Optional<T>::value) {
      return value ? Json(*value) : Json();
    } else {
      return Json(value);
    }
  };
  const auto set = [&value](const Json& json) {
    if constexpr (Optional<T>::value) {
      value.reset();
      if (!json.is_null()) value = json.get<typename T::value_type>();
    } else if (!json.is_null()) {
      value = json.get<T>();
    }
  };
  return add(key, kType, get, set, meaning);
}

template <typename E>
Field& Schema::add(const std::string& key, E& value, std::vector<std::pair<std::string, E>> names,
                   const std::string& meaning) {
  std::vector<std::string> choices;
  for (const auto& [name, one] : names) choices.push_back(name);
  const auto get = [&value, names]() -> Json {
    for (const auto& [name, one] : names) {
      if (one == value) return name;
    }
    // an enumeration's value without a name, which only programs can set
    return static_cast<int64_t>(value);
  };
  const auto set = [&value, names](const Json& json) {
    for (const auto& [name, one] : names) {
      if (json == name) value = one;
    }
  };
  return fields_.emplace_back(key, meaning, Field::Type::text, get, set).one_of(std::move(choices));
}

}  // namespace tutti
