// Fuzzes settings: lines of NAME=VALUE.
#include "base/settings.h"

#include "base/text.h"
#include "tests/fuzz/target.h"

namespace tutti {

namespace {

void read_all(const Settings& settings) {
  for (const SettingInfo& info : all_settings()) {
    switch (info.type) {
      case SettingType::string:
        settings.get_string(info.name);
        break;
      case SettingType::integer:
        settings.get_int(info.name);
        break;
      case SettingType::boolean:
        settings.get_bool(info.name);
        break;
      case SettingType::seconds:
        settings.get_duration(info.name);
        break;
      case SettingType::bytes:
        settings.get_bytes(info.name);
        break;
    }
  }
  settings.wire_settings();
}

}  // namespace

}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  Settings settings;
  for (const std::string& line : split(fuzz::text_of(data, size), '\n')) {
    const std::string name = line.substr(0, line.find('='));
    const std::string value = line.substr(std::min(name.size() + 1, line.size()));
    const std::string shown = name.substr(0, name.find('\0'));
    fuzz::take(shown, [&] { settings.set(name, value); });
  }
  read_all(settings);
  return 0;
}
