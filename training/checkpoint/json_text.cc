#include "training/checkpoint/json_text.h"

#include <set>
#include <stdexcept>
#include <vector>

#include "base/text.h"

namespace tutti::training {

using nlohmann::json;

json parse_strictly(std::string_view text, int max_depth) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open, by depth
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    const auto level = static_cast<size_t>(depth);
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth >= max_depth) {
        throw std::invalid_argument(cat("more than ", max_depth, " brackets inside each other"));
      }
      keys.resize(level + 1);
      keys[level].clear();
    } else if (event == json::parse_event_t::key) {
      // A key is one deeper than the start of its object.
      if (!keys[level - 1].insert(parsed.get<std::string>()).second) {
        throw std::invalid_argument(
            cat("the key ", in_quotes(parsed.get<std::string>()), " twice"));
      }
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check);
  } catch (const json::exception& error) {
    throw std::invalid_argument(std::string(error.what()).substr(0, 200));
  }
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string cut(text.substr(0, kLongest));
  if (text.size() > kLongest) cut += "...";
  return json(cut).dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace tutti::training
