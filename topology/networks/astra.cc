// Reader of ASTRA-sim's analytical networks.

#include <algorithm>
#include <map>

#include "topology/networks/file_formats.h"

namespace tutti {

namespace {

// Parses a list: "key: [ a, b ]" or "key: a" gives a, b.
std::vector<std::string> list_of(const TextFile& file, const TextLine& line) {
  std::string text;
  for (size_t i = 1; i < line.words.size(); ++i) text += line.words[i];
  const bool brackets = text.starts_with('[') && text.ends_with(']');
  if (brackets) text = text.substr(1, text.size() - 2);
  if (text.find_first_of("[]") != text.npos) file.refuse(line.number, "unbalanced bracket");
  std::vector<std::string> values;
  for (std::string value : split(text, ',')) {
    std::erase_if(value, [](char c) { return c == '"' || c == '\''; });
    values.push_back(std::move(value));
  }
  if (values.empty() || std::ranges::count(values, std::string()) > 0) {
    file.refuse(line.number, line.words[0], " has an empty value");
  }
  return values;
}

struct AstraList {
  int line = 0;
  std::vector<std::string> values;
};

std::unique_ptr<Pattern> astra_dimension(const TextFile& file, int line, const std::string& kind,
                                         int size, LinkSpeed speed) {
  if (kind == "Ring") return ring_pattern(size, true, speed);
  if (kind == "Switch") return switch_pattern(size, speed);
  if (kind == "FullyConnected") {
    try {
      return full_pattern(size, speed);
    } catch (const Error& error) {
      file.refuse(line, error.what());
    }
  }
  file.refuse(line, "unknown topology '", kind, "': expected Ring, Switch or FullyConnected");
}

}  // namespace

std::unique_ptr<Network> read_astra(const TextFile& file) {
  std::map<std::string, AstraList> lists;
  for (const TextLine& line : file.lines) {
    const std::string key = line.words[0];
    const bool known =
        key == "topology:" || key == "npus_count:" || key == "bandwidth:" || key == "latency:";
    if (!known) {
      file.refuse(line.number, "'", key,
                  "' is not one of topology:, npus_count:, bandwidth:, latency:");
    }
    if (!lists.try_emplace(key, AstraList{line.number, list_of(file, line)}).second) {
      file.refuse(line.number, key, " appears twice");
    }
  }
  for (const char* key : {"topology:", "npus_count:", "bandwidth:", "latency:"}) {
    if (!lists.contains(key)) file.refuse(file.lines.back().number, key, " is missing");
    const AstraList& list = lists[key];
    const size_t dimensions = lists["topology:"].values.size();
    if (list.values.size() != dimensions) {
      file.refuse(list.line, key, " has ", list.values.size(), " values for ", dimensions,
                  " dimensions");
    }
  }
  Structure structure;
  int64_t ranks = 1;
  for (size_t i = 0; i < lists["topology:"].values.size(); ++i) {
    const auto value = [&](const char* key) { return lists[key].values[i]; };
    const auto line = [&](const char* key) { return lists[key].line; };
    const int size =
        file.parse_whole(line("npus_count:"), value("npus_count:"), "npus_count", 1, kMostNodes);
    ranks *= size;
    if (ranks > kMostNodes)
      file.refuse(line("npus_count:"), ranks, " ranks exceed the limit of ", kMostNodes);
    LinkSpeed speed;
    speed.GBps = file.parse_number(line("bandwidth:"), value("bandwidth:"), "bandwidth");
    if (speed.GBps == 0) file.refuse(line("bandwidth:"), "a bandwidth must be above 0");
    speed.latency_us = 1e-3 * file.parse_number(line("latency:"), value("latency:"), "latency");
    const bool inside = i == 0 && lists["topology:"].values.size() > 1;
    if (inside) speed.kind = LinkClass::nvlink;
    structure.stages.push_back(
        astra_dimension(file, line("topology:"), value("topology:"), size, speed));
    structure.stage_is_inside_host |= inside;
  }
  try {
    return std::make_unique<Network>(std::move(structure));
  } catch (const Error& error) {
    file.refuse(lists["npus_count:"].line, error.what());
  }
}

}  // namespace tutti
