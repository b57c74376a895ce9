// Detects the format of a network file. Also defines the functions that all readers share.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include "base/file_kind.h"
#include "base/parse_number.h"
#include "topology/graph_sources.h"
#include "topology/networks/file_formats.h"
#include "topology/networks/load_network.h"

namespace tutti {

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

int TextFile::parse_whole(int line, std::string_view text, std::string_view what, int least,
                          int most) const {
  const auto value = tutti::parse_number<int>(text);
  if (value && *value >= least && *value <= most) return *value;
  refuse(line, what, " is '", text, "': expected a number from ", least, " to ", most);
}

double TextFile::parse_number(int line, std::string_view text, std::string_view what) const {
  const auto value = tutti::parse_number<double>(text);
  if (value && std::isfinite(*value) && *value >= 0) return *value;
  refuse(line, what, " is '", text, "': expected a number of at least 0");
}

double TextFile::parse(int line, double (*parse)(std::string_view), const std::string& text) const {
  try {
    return parse(text);
  } catch (const Error& error) {
    refuse(line, error.what());
  }
}

TextFile split_into_lines(const std::string& text, const std::string& name) {
  TextFile file{.name = name, .lines = {}};
  if (text.size() > limit_of(FileKind::graph).most) file.refuse(1, "the file is too large");
  std::istringstream in(text);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    TextLine one{.number = number, .words = {}};
    for (std::string word; words >> word;) one.words.push_back(word);
    if (!one.words.empty()) file.lines.push_back(std::move(one));
  }
  return file;
}

std::unique_ptr<Network> read_network(const std::string& text, const std::string& name) {
  const TextFile file = split_into_lines(text, name);
  if (file.lines.empty()) file.refuse(1, "the file is empty");
  const auto has = [&](std::string_view word) {
    return std::ranges::any_of(file.lines, [&](const TextLine& line) {
      return lower_case(line.words[0]).starts_with(word);
    });
  };
  if (has("npus_count:")) return read_astra(file);
  if (has("nodes") && has("tiers")) return read_htsim(file);
  if (has("switchname=")) return read_slurm(file);
  const auto is_number = [](const std::string& word) {
    return std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  const std::vector<std::string>& first = file.lines[0].words;
  const size_t numbers = static_cast<size_t>(std::ranges::count_if(first, is_number));
  if (first.size() >= 3 && numbers >= 3) return read_ns3(file);
  throw Error(
      ErrorCode::invalid_argument, cat(name, " is in no known network format"),
      {.where = cat("line ", file.lines[0].number),
       .cause = cat("the file begins with '", first[0].substr(0, 40), "'"),
       .remedy = "give ASTRA-sim's analytical .yml, htsim's .topo, the topology.txt of ns-3, "
                 "Slurm's topology.conf, or a description such as switch:8"});
}

}  // namespace tutti
