// The registry of settings. Each setting has a name, a type, a default and a meaning.
//
// A setting's value comes from the TUTTI_* environment variable of that name, or from its default;
// `tutti info` shows the settings. A misspelt TUTTI_ variable produces a warning with the nearest
// name. The environment is read once per process. set() overrides it for tests and command-line
// options, and must be called before threads start.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class SettingType { string, integer, boolean, seconds, bytes };

struct SettingInfo {
  std::string_view name;  // "TUTTI_TIMEOUT"
  SettingType type;
  std::string_view default_value;
  std::string_view choices;  // "a|b|c"; "1..": whole numbers of at least 1; empty: any value
  bool wire;                 // must be the same on all ranks; compared at init
  bool internal;             // set by the launcher for its ranks; hidden from `tutti info`
  std::string_view meaning;
};

std::span<const SettingInfo> all_settings();
std::string_view name(SettingType type);

struct SettingValue {
  std::string text;
  std::string origin;  // "default", "environment", "option"
};

// An invalid value in the environment.
struct SettingMistake {
  std::string name;
  std::string value;
  std::string why;  // text of the error
};

class Settings {
 public:
  // Reads the environment. Throws Error(invalid_argument) that names the variable if its value has
  // the wrong type.
  Settings() { read_environment(nullptr); }
  // Reads the environment. A value of the wrong type is appended to `mistakes`, and the setting
  // keeps its default.
  explicit Settings(std::vector<SettingMistake>& mistakes) { read_environment(&mistakes); }

  std::string get_string(std::string_view name) const;
  int64_t get_int(std::string_view name) const;
  bool get_bool(std::string_view name) const;
  // Returns the duration, capped to the longest one, which Deadline treats as never.
  std::chrono::nanoseconds get_duration(std::string_view name) const;
  uint64_t get_bytes(std::string_view name) const;
  SettingValue value(std::string_view name) const;

  // Sets a value; `origin` is where it comes from. Throws Error(invalid_argument) for an unknown
  // name (the error suggests the nearest one) or a value of the wrong type.
  void set(std::string_view name, std::string_view value, std::string_view origin = "option");

  // Returns one warning line per TUTTI_ variable in the environment that is not a setting.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Returns the settings that affect the wire, for comparison at init: "TUTTI_A=1;TUTTI_B=x;".
  std::string wire_settings() const;

 private:
  void read_environment(std::vector<SettingMistake>* mistakes);
  const SettingValue& find(std::string_view name) const;

  mutable std::mutex mutex_;
  std::map<std::string, SettingValue, std::less<>> values_;
  std::vector<std::string> warnings_;
};

// Returns the process's settings, read on first use. The start-up code of the process logs the
// warnings.
Settings& settings();

// Reads the settings as settings() does, but gives variables with invalid values their defaults
// instead of throwing, and returns the mistakes. It is for diagnostic programs, which call it
// before settings().
const std::vector<SettingMistake>& tolerate_setting_mistakes();

}  // namespace tutti
