#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti {

namespace {

using Plain = nlohmann::json;  // for parsing, and for scalars in output

[[noreturn]] void refuse_text(const std::string& problem) {
  throw Error(ErrorCode::invalid_argument, problem);
}

// Returns a name that the object has twice, or nullptr.
const std::string* repeated_name(const Json::Object& object) {
  if (object.size() < 2) return nullptr;
  std::vector<const std::string*> names;
  for (const Json::Member& member : object) names.push_back(&member.name);
  std::ranges::sort(names, {}, [](const std::string* name) { return std::string_view(*name); });
  const auto twice = std::ranges::adjacent_find(
      names, [](const std::string* a, const std::string* b) { return *a == *b; });
  return twice == names.end() ? nullptr : *twice;
}

// Builds a value from the parser's events.
class Builder {
 public:
  Json result;

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(const std::string& value) { return add(value); }
  bool binary(const Plain::binary_t&) { return false; }  // not part of JSON text
  bool key(std::string& name) {
    open_.back().name = name;
    return true;
  }
  bool start_object(size_t) { return start(true); }
  bool start_array(size_t) { return start(false); }
  bool end_object() {
    if (const std::string* name = repeated_name(open_.back().members)) {
      refuse_text(cat("the name ", in_quotes(*name), " appears twice in an object"));
    }
    return end();
  }
  bool end_array() { return end(); }
  // Throws the parser's error. Its message is complete but quotes the input, which is untrusted.
  bool parse_error(size_t, const std::string&, const Plain::exception& error) {
    const std::string_view words = error.what();
    const size_t start = words.find("parse error at line");
    refuse_text(
        cat("invalid JSON: ", printable(words.substr(start == words.npos ? 0 : start), 240)));
  }

 private:
  struct Open {
    bool is_object;
    std::string name;  // member name of the next value
    Json::Object members;
    Json::Array values;
  };

  bool start(bool is_object) {
    if (open_.size() >= Json::kMaxDepth) {
      refuse_text(cat("brackets are nested more than ", Json::kMaxDepth, " levels deep"));
    }
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }
  bool end() {
    Open done = std::move(open_.back());
    open_.pop_back();
    return add(done.is_object ? Json(std::move(done.members)) : Json(std::move(done.values)));
  }
  bool add(Json value) {
    if (open_.empty()) {
      result = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().members.push_back({std::move(open_.back().name), std::move(value)});
    } else {
      open_.back().values.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Open> open_;
};

// Serialises a value.
class Writer {
 public:
  Writer(int indent, Json::BadText bad_text) : indent_(indent), bad_text_(bad_text) {}

  void write(const Json& json, int depth) {
    if (json.is_object()) {
      write_list('{', '}', json.items(), depth, [&](const Json::Member& member) {
        write_text(member.name);
        text_ += indent_ < 0 ? ":" : ": ";
        write(member.value, depth + 1);
      });
    } else if (json.is_array()) {
      write_list('[', ']', json, depth, [&](const Json& value) { write(value, depth + 1); });
    } else if (json.is_string()) {
      write_text(json.get<std::string>());
    } else if (json.is_natural_number()) {
      text_ += std::to_string(json.get<uint64_t>());
    } else if (json.is_whole_number()) {
      text_ += std::to_string(json.get<int64_t>());
    } else if (json.is_number()) {
      text_ += Plain(json.get<double>()).dump();
    } else {
      text_ += json.is_null() ? "null" : json.get<bool>() ? "true" : "false";
    }
  }

  std::string take() { return std::move(text_); }

 private:
  template <typename Values, typename Write>
  void write_list(char first, char last, const Values& values, int depth, Write write_one) {
    text_ += first;
    bool starts = true;
    for (const auto& value : values) {
      if (!starts) text_ += ',';
      starts = false;
      new_line(depth + 1);
      write_one(value);
    }
    if (!starts) new_line(depth);
    text_ += last;
  }

  void new_line(int depth) {
    if (indent_ >= 0) text_ += '\n' + std::string(static_cast<size_t>(indent_ * depth), ' ');
  }

  void write_text(const std::string& text) {
    using Handler = Plain::error_handler_t;
    try {
      text_ += Plain(text).dump(
          -1, ' ', false, bad_text_ == Json::BadText::refuse ? Handler::strict : Handler::replace);
    } catch (const Plain::exception&) {
      refuse_text(cat(in_quotes(text), " is not valid UTF-8, which JSON requires"));
    }
  }

  int indent_;
  Json::BadText bad_text_;
  std::string text_;
};

}  // namespace

Json Json::parse(std::string_view text) {
  Builder builder;
  Plain::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.result);
}

Json Json::object() { return Json(Object()); }

Json::Json(std::nullptr_t) : value_(nullptr) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(Array values) : value_(std::move(values)) {}
Json::Json(Object members) : value_(std::move(members)) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json::Json(std::initializer_list<Json> values) {
  const bool are_members = std::ranges::all_of(values, [](const Json& value) {
    return value.is_array() && value.size() == 2 && value.front().is_string();
  });
  if (!are_members) {
    value_ = Array(values);
    return;
  }
  Object members;
  for (const Json& pair : values) members.push_back({pair.at(0).text(), pair.at(1)});
  value_ = std::move(members);
}

bool Json::is_natural_number() const {
  const auto* number = std::get_if<int64_t>(&value_);
  return std::holds_alternative<uint64_t>(value_) || (number != nullptr && *number >= 0);
}

size_t Json::size() const {
  if (const auto* values = std::get_if<Array>(&value_)) return values->size();
  if (const auto* members = std::get_if<Object>(&value_)) return members->size();
  if (is_null()) return 0;
  refuse("an array or an object");
}

const Json* Json::begin() const {
  if (const auto* values = std::get_if<Array>(&value_)) return values->data();
  refuse("an array");
}

const Json* Json::end() const { return begin() + size(); }

const Json::Object& Json::items() const {
  if (const auto* members = std::get_if<Object>(&value_)) return *members;
  refuse("an object");
}

const Json& Json::at(size_t index) const {
  if (index >= size()) refuse(cat("an array of at least ", index + 1, " values"));
  return begin()[index];
}

const Json& Json::at(std::string_view name) const {
  if (const Json* found = find(name)) return *found;
  if (!is_object()) refuse("an object");
  refuse_text(cat(in_quotes(name), " is missing"));
}

const Json* Json::find(std::string_view name) const {
  const auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  const auto found = std::ranges::find(*members, name, &Member::name);
  return found == members->end() ? nullptr : &found->value;
}

Json& Json::member(std::string_view name) {
  if (const Json* found = find(name)) return const_cast<Json&>(*found);
  if (is_null()) value_ = Object();
  auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) refuse("an object");
  return members->emplace_back(Json::Member{std::string(name), Json()}).value;
}

void Json::erase(std::string_view name) {
  if (auto* members = std::get_if<Object>(&value_)) {
    std::erase_if(*members, [&](const Member& member) { return member.name == name; });
  }
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array();
  auto* values = std::get_if<Array>(&value_);
  if (values == nullptr) refuse("an array");
  values->push_back(std::move(value));
}

std::string Json::dump(int indent, BadText bad_text) const {
  Writer writer(indent, bad_text);
  writer.write(*this, 0);
  return writer.take();
}

std::string Json::words() const {
  if (is_array()) return "an array";
  if (is_object()) return "an object";
  return is_string() ? in_quotes(text()) : dump();
}

void Json::refuse(std::string_view wanted) const {
  refuse_text(cat("expected ", wanted, ", found ", words()));
}

int64_t Json::signed_number() const {
  if (const auto* number = std::get_if<int64_t>(&value_)) return *number;
  refuse(is_whole_number() ? "a smaller number" : "a whole number");
}

uint64_t Json::unsigned_number() const {
  if (const auto* number = std::get_if<uint64_t>(&value_)) return *number;
  if (is_natural_number()) return static_cast<uint64_t>(std::get<int64_t>(value_));
  refuse("a non-negative whole number");
}

double Json::number() const {
  if (const auto* number = std::get_if<double>(&value_)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value_)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(&value_)) return static_cast<double>(*number);
  refuse("a number");
}

const std::string& Json::text() const {
  if (const auto* text = std::get_if<std::string>(&value_)) return *text;
  refuse("a string");
}

bool Json::truth() const {
  if (const auto* truth = std::get_if<bool>(&value_)) return *truth;
  refuse("true or false");
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return (a <=> b) == 0;
  if (!a.is_object() || !b.is_object()) return a.value_ == b.value_;
  return a.size() == b.size() && std::ranges::all_of(a.items(), [&](const Json::Member& member) {
           const Json* other = b.find(member.name);
           return other != nullptr && member.value == *other;
         });
}

std::partial_ordering operator<=>(const Json& a, const Json& b) {
  if (!a.is_number() || !b.is_number()) return std::partial_ordering::unordered;
  if (!a.is_whole_number() || !b.is_whole_number()) return a.number() <=> b.number();
  if (a.is_natural_number() != b.is_natural_number()) {
    return a.is_natural_number() ? std::partial_ordering::greater : std::partial_ordering::less;
  }
  if (a.is_natural_number()) return a.unsigned_number() <=> b.unsigned_number();
  return a.signed_number() <=> b.signed_number();
}

std::ostream& operator<<(std::ostream& out, const Json& json) {
  return out << json.dump(-1, Json::BadText::replace);
}

}  // namespace tutti
