// What a configuration is made of: fields with a name, a meaning and limits, each of them a C++
// value that is read from JSON, or from the words of a command line, and written as JSON. One
// table, for files, options, the log and whatever compares two of them.
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

// One value of a configuration. Whatever says more about it returns the field itself.
class Field {
 public:
  enum class Type { truth, whole, number, text, wholes, numbers, texts };
  // What there is to say besides: for the command line, and for those who compare.
  struct Traits {
    std::string flags;       // "--lr"; several: "--micro-batches,--accumulate"; none: no option
    bool flag_means = true;  // of a truth: what its flag says (--no-bias: false)
    std::string alone;       // the value of an option without one
    bool by_commas = false;  // a list is one word: A,B
    std::string group;       // in the help
    std::string value_name;  // in the help: FILE
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
  // Of a number, or of each in a list. Without: from 0.
  Field& between(double low, double high);
  Field& at_least(double low) { return between(low, high_); }
  // Of a text: which ones there are.
  Field& one_of(std::vector<std::string> choices);
  // What it matters for, to those who compare configurations; theirs to name.
  Field& role(std::string name);

  const std::string& key() const { return key_; }
  const std::string& meaning() const { return meaning_; }
  const Traits& traits() const { return traits_; }
  Type type() const { return type_; }
  bool is_list() const { return type_ >= Type::wholes; }
  const std::vector<std::string>& choices() const { return choices_; }  // empty: any
  const std::string& role() const { return role_; }
  // As people call it: its option without the dashes, or what would be one.
  std::string short_name() const;

  // Null where an optional value is not there.
  Json get() const { return get_(); }
  // Null takes an optional value away, and says nothing of others. Throws Error(invalid_argument)
  // that says what is wanted.
  void set(const Json& value) const;
  // The value itself, if set() would take it; else throws as set() does.
  Json checked(const Json& value) const;
  // The JSON that words stand for, as the type says, or what is wrong with them.
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

// Fields by their names; those with dots are members of members: "optimizer.lr".
class Schema {
 public:
  // Whole numbers have a limit, unless a field says otherwise: products of sizes are numbers too.
  explicit Schema(double largest_whole = std::numeric_limits<double>::max())
      : largest_whole_(largest_whole) {}
  // `value` outlives the schema. It is a bool, a number, a std::string, a std::vector of numbers or
  // strings, or a std::optional of one of them.
  template <typename T>
  Field& add(const std::string& key, T& value, const std::string& meaning);
  // Names for the values of an enumeration.
  template <typename E>
  Field& add(const std::string& key, E& value, std::vector<std::pair<std::string, E>> names,
             const std::string& meaning);

  // What is no single value: set() throws Error(invalid_argument) that says what is wanted.
  Field& add(const std::string& key, Field::Type type, std::function<Json()> get,
             std::function<void(const Json&)> set, const std::string& meaning);

  const std::deque<Field>& fields() const { return fields_; }
  std::deque<Field>& fields() { return fields_; }
  const Field* find(std::string_view key) const;  // nullptr where there is none

  // Takes over what `json` says, and leaves the rest. Throws Error(invalid_argument) for a member
  // that is no field, with the nearest name, and for a value of another type or out of range;
  // `where` is what it was read from, `prefix` the name of the object.
  void read(const Json& json, const std::string& where = {}, const std::string& prefix = {}) const;
  // All fields but those without a value.
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

// The member of a member of an object by a name with dots; nullptr where there is none.
const Json* find_member(const Json& json, std::string_view key);
// Makes the objects that are not there.
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
    return static_cast<int64_t>(value);  // one that only programs can choose
  };
  const auto set = [&value, names](const Json& json) {
    for (const auto& [name, one] : names) {
      if (json == name) value = one;
    }
  };
  return fields_.emplace_back(key, meaning, Field::Type::text, get, set).one_of(std::move(choices));
}

}  // namespace tutti
