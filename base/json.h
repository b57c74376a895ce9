// JSON values; all reading and writing of JSON goes through this class. Objects keep the order of
// their members. A wrong type, a missing member or a value out of range throws
// Error(invalid_argument).
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tutti {

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  // Maximum nesting depth. Files are untrusted, and code that walks a value may recurse per level.
  static constexpr int kMaxDepth = 64;

  // Parses `text`. Throws Error(invalid_argument) with the position for invalid JSON, a duplicate
  // name, or nesting beyond kMaxDepth.
  static Json parse(std::string_view text);

  static Json array(std::initializer_list<Json> values = {}) { return Json(Array(values)); }
  static Json object();

  Json(std::nullptr_t = nullptr);
  Json(std::string_view text);
  Json(const std::string& text) : Json(std::string_view(text)) {}
  Json(const char* text) : Json(std::string_view(text)) {}
  Json(std::same_as<bool> auto truth) : value_(truth) {}
  Json(std::floating_point auto number) : value_(std::in_place_type<double>, number) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T number) {
    if (std::in_range<int64_t>(number)) {
      value_.emplace<int64_t>(number);
    } else {
      value_.emplace<uint64_t>(number);
    }
  }
  template <typename T>
  requires(!std::same_as<T, Json>) Json(const std::vector<T>& values)
      : Json(Array(values.begin(), values.end())) {}
  template <typename T>
  Json(const std::map<std::string, T>& members);
  Json(Array values);
  Json(Object members);
  // Makes an object or an array: {{"a", 1}, {"b", 2}} is an object, like any list of pairs that
  // begin with a text; {1, 2} is an array.
  Json(std::initializer_list<Json> values);
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_number() const { return is_whole_number() || std::holds_alternative<double>(value_); }
  bool is_whole_number() const {
    return std::holds_alternative<int64_t>(value_) || std::holds_alternative<uint64_t>(value_);
  }
  bool is_natural_number() const;  // true if it is integral and not negative

  // Returns the value as T: bool, a number type (the range is checked), std::string, or a
  // std::vector or std::map<std::string, ...> of such types.
  template <typename T>
  T get() const;
  template <typename T>
  requires(std::is_arithmetic_v<T> && !std::same_as<T, char>) ||
      std::same_as<T, std::string> operator T() const {
    return get<T>();
  }

  // Returns the number of values of an array or members of an object; 0 for null.
  size_t size() const;
  bool empty() const { return size() == 0; }
  // begin() and end() are for the values of an array, items() is for the members of an object.
  const Json* begin() const;
  const Json* end() const;
  const Object& items() const;
  const Json& front() const { return at(0); }
  const Json& back() const { return at(size() - 1); }
  const Json& at(size_t index) const;
  const Json& at(std::string_view name) const;
  const Json& operator[](std::integral auto index) const { return at(static_cast<size_t>(index)); }
  const Json& operator[](const char* name) const { return at(name); }
  const Json& operator[](const std::string& name) const { return at(name); }
  const Json* find(std::string_view name) const;  // nullptr: no such member, or not an object
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  // Returns the member `name`, or `fallback` if there is none.
  template <typename T>
  T value(std::string_view name, T fallback) const {
    const Json* found = find(name);
    return found == nullptr ? fallback : found->get<T>();
  }

  Json& operator[](std::integral auto index) {
    return const_cast<Json&>(std::as_const(*this).at(static_cast<size_t>(index)));
  }
  // Returns the member of this name, which is created if it is missing. Turns null into an object.
  Json& operator[](const char* name) { return member(name); }
  Json& operator[](const std::string& name) { return member(name); }
  void erase(std::string_view name);
  // Appends `value` to the array. Turns null into an array.
  void push_back(Json value);

  // Writes the value on one line if `indent` is negative, otherwise one value per line, indented by
  // `indent` blanks per level. NaN and infinity become null. Throws for text that is not UTF-8,
  // unless BadText::replace is given.
  enum class BadText { refuse, replace };
  std::string dump(int indent = -1, BadText bad_text = BadText::refuse) const;

  // Describes the value for a message: "an array", "an object", or any other value as it is written
  // (a text may be untrusted).
  std::string words() const;

  // Compares numbers by value, and objects regardless of member order.
  friend bool operator==(const Json& a, const Json& b);
  // Orders numbers; all other values are unordered.
  friend std::partial_ordering operator<=>(const Json& a, const Json& b);
  template <typename T>
  requires std::is_arithmetic_v<T> || std::convertible_to<const T&, std::string_view>
  friend bool operator==(const Json& a, const T& b) { return a == Json(b); }
  template <typename T>
  requires std::is_arithmetic_v<T>
  friend std::partial_ordering operator<=>(const Json& a, const T& b) { return a <=> Json(b); }
  friend std::ostream& operator<<(std::ostream& out, const Json& json);

 private:
  [[noreturn]] void refuse(std::string_view wanted) const;
  Json& member(std::string_view name);
  int64_t signed_number() const;
  uint64_t unsigned_number() const;
  double number() const;
  const std::string& text() const;
  bool truth() const;

  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string name;
  Json value;
  bool operator==(const Member&) const = default;
};

template <typename T>
Json::Json(const std::map<std::string, T>& members) : value_(Object()) {
  for (const auto& [name, value] : members) {
    std::get<Object>(value_).push_back({name, Json(value)});
  }
}

template <typename T>
T Json::get() const {
  if constexpr (std::same_as<T, bool>) {
    return truth();
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(number());
  } else if constexpr (std::unsigned_integral<T>) {
    const uint64_t value = unsigned_number();
    if (!std::in_range<T>(value)) refuse("a smaller number");
    return static_cast<T>(value);
  } else if constexpr (std::signed_integral<T>) {
    const int64_t value = signed_number();
    if (!std::in_range<T>(value)) refuse("a smaller number");
    return static_cast<T>(value);
  } else if constexpr (std::same_as<T, std::string>) {
    return text();
  } else if constexpr (requires { typename T::mapped_type; }) {
    T values;
    for (const auto& [name, value] : items()) {
      values.emplace(name, value.template get<typename T::mapped_type>());
    }
    return values;
  } else {
    T values;
    for (const Json& value : *this) values.push_back(value.get<typename T::value_type>());
    return values;
  }
}

}  // namespace tutti
