#include "collectives/cluster/measured_table.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/median.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "collectives/program/bus_factor.h"

namespace tutti {

namespace {

std::vector<std::string> words_of(std::string_view line) {
  std::istringstream words{std::string(line)};
  return {std::istream_iterator<std::string>(words), {}};
}

// Splits a CSV line. Fields may be quoted; a quotation mark within is doubled.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

// Converts a table's lines to calls. Its errors name the line.
class Reader {
 public:
  Reader(const std::string& file, const TableDefaults& defaults,
         const std::function<Collective(const std::string&)>& named)
      : file_(file), defaults_(defaults), named_(named), collective_(defaults.collective) {}

  MeasuredTable read(const std::string& text) {
    for (const std::string& line : split(text, '\n')) {
      ++number_;
      if (columns_.empty() && is_csv_header(line)) continue;
      columns_.empty() ? read_printed(line) : read_csv(line);
    }
    if (calls_.empty()) {
      refuse("no measured call found",
             "use the output of nccl-tests, or CSV with a header line and the columns size_bytes "
             "and time_us");
    }
    MeasuredTable table;
    table.gpu = gpu_;
    for (auto& [key, times] : calls_) {
      const auto& [collective, hosts, gpus, bytes] = key;
      table.calls.push_back({collective, hosts, gpus, bytes, median(times)});
    }
    return table;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& remedy) const {
    throw Error(ErrorCode::invalid_argument, cat(file_, ", line ", number_, ": ", what),
                {.remedy = remedy});
  }

  void add(Collective collective, int hosts, int gpus, double bytes, double us) {
    if (bytes <= 0 || us <= 0) return;  // calls without data
    calls_[{collective, hosts, gpus, bytes}].push_back(us);
  }

  int gpus_of_a_host(int ranks, int hosts) const {
    if (ranks >= 1 && hosts >= 1 && ranks % hosts == 0) return ranks / hosts;
    refuse(cat(ranks, " GPUs on ", hosts, " hosts are not the same number on each host"),
           "fit clusters with the same number of GPUs on each host");
  }

  // ---- CSV

  bool is_csv_header(const std::string& line) {
    const std::vector<std::string> names = fields_of(line);
    std::map<std::string, size_t> columns;
    for (size_t i = 0; i < names.size(); ++i) {
      std::string name = names[i];
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
      columns.try_emplace(name, i);
    }
    const auto find = [&](std::initializer_list<const char*> aliases, const char* column) {
      for (const char* const alias : aliases) {
        if (columns.contains(alias)) return columns_[column] = columns.at(alias), true;
      }
      return false;
    };
    if (names.size() < 2 || !find({"size_bytes", "size", "bytes"}, "size")) return false;
    const bool has_time = find({"time_us", "oop_time_us", "time"}, "time");
    if (!find({"busbw_gbps", "oop_busbw_gbps", "busbw"}, "busbw") && !has_time) {
      refuse("the columns have neither time_us nor busbw_GBps", "rename the column that has it");
    }
    find({"collective", "op"}, "collective");
    find({"nodes", "hosts"}, "hosts");
    find({"gpus", "ranks", "nranks"}, "ranks");
    find({"gpu"}, "gpu");
    find({"system"}, "system");
    return true;
  }

  std::string field(const std::vector<std::string>& fields, const char* column) const {
    const auto found = columns_.find(column);
    if (found == columns_.end() || found->second >= fields.size()) return {};
    return fields[found->second];
  }

  // Returns a column's integer. If the table lacks the column, returns `given`, or throws if
  // `given` is 0.
  int whole(const std::vector<std::string>& fields, const char* column, int given,
            const char* remedy) const {
    const std::string text = field(fields, column);
    if (text.empty() && given > 0) return given;
    const auto value = parse_number<int>(text);
    if (value && *value >= 1) return *value;
    refuse(cat("'", text, "' is not a number (column ", column, ")"), remedy);
  }

  void read_csv(const std::string& line) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() == 1 && words_of(line).empty()) return;
    const auto size = parse_number<double>(field(fields, "size"));
    if (!size)
      refuse(cat("'", field(fields, "size"), "' is not a size in bytes"), "correct the table");
    const std::string system = field(fields, "system");
    systems_.insert(system);
    if (systems_.size() > 1) {
      refuse(cat("the rows were measured on several systems: '", *systems_.begin(), "' and '",
                 *systems_.rbegin(), "'"),
             "use one file for each system");
    }
    if (gpu_.empty()) gpu_ = field(fields, "gpu");
    const std::string what = field(fields, "collective");
    if (what.empty() && !collective_) {
      refuse("the table does not name its collective", "name it with --collective");
    }
    const Collective collective = what.empty() ? *collective_ : named_(what);
    constexpr char kRemedy[] = "add the columns nodes and gpus, or name the cluster with --cluster";
    const int hosts = whole(fields, "hosts", defaults_.hosts.value_or(1), kRemedy);
    const int given = defaults_.gpus.value_or(0) * hosts;
    const int gpus = gpus_of_a_host(whole(fields, "ranks", given, kRemedy), hosts);
    const auto us = parse_number<double>(field(fields, "time"));
    if (us) return add(collective, hosts, gpus, *size, *us);
    const auto busbw = parse_number<double>(field(fields, "busbw"));
    if (!busbw || *busbw <= 0) return;  // the row has no time
    add(collective, hosts, gpus, *size,
        *size * bus_factor(collective, hosts * gpus) / (*busbw * 1e3));
  }

  // ---- nccl-tests

  void read_printed(std::string_view line) {
    if (line.starts_with('[')) {  // prefix of mpirun --tag-output
      const size_t tag = line.find(">:");
      if (tag != line.npos) line.remove_prefix(tag + 2);
    }
    read_program(line);
    std::vector<std::string> words = words_of(line);
    if (!words.empty() && is_label(words[0])) words.erase(words.begin());
    if (words.empty()) return;
    if (words[0] == "#") words.erase(words.begin());
    if (words.size() > 1 && words[0] == "Rank") return read_rank(words);
    const auto time = std::ranges::find(words, "time");
    if (words[0] == "size" && time != words.end()) {
      time_ = static_cast<size_t>(time - words.begin());
      redop_ = static_cast<size_t>(std::ranges::find(words, "redop") - words.begin());
      return;
    }
    if (time_ == 0 || words.size() < time_ + 3) return;
    const auto size = parse_number<double>(words[0]);
    const auto us = parse_number<double>(words[time_]);
    if (!size || !us) return;
    add_printed(words, *size, *us);
  }

  // Matches "0:", the prefix of srun --label.
  static bool is_label(std::string_view word) {
    return word.ends_with(':') && parse_number<int>(word.substr(0, word.size() - 1)).has_value();
  }

  // Finds "all_reduce_perf" in a command or a title.
  void read_program(std::string_view line) {
    const size_t end = line.find("_perf");
    if (end == line.npos || defaults_.collective) return;
    size_t begin = end;
    while (begin > 0 && (std::isalpha(static_cast<unsigned char>(line[begin - 1])) != 0 ||
                         line[begin - 1] == '_')) {
      --begin;
    }
    try {
      collective_ = named_(std::string(line.substr(begin, end - begin)));
    } catch (const Error&) {  // not the name of a collective
    }
  }

  // Reads a rank's line: "Rank 0 Group 0 Pid 9023 on node1 device 0 [0x53] NVIDIA H100 80GB HBM3".
  void read_rank(const std::vector<std::string>& words) {
    if (words[1] == "0") {  // first rank of a job
      ranks_.clear();
      time_ = 0;
    }
    const auto on = std::ranges::find(words, "on");
    if (on == words.end() || on + 1 == words.end()) return;
    ++ranks_[*(on + 1)];
    const auto bus = std::ranges::find_if(words, [](const auto& w) { return w.starts_with("["); });
    if (!gpu_.empty() || bus == words.end()) return;
    for (auto word = bus + 1; word != words.end(); ++word) {
      gpu_ += cat(gpu_.empty() ? "" : " ", *word);
    }
  }

  void add_printed(const std::vector<std::string>& words, double size, double us) {
    int hosts = defaults_.hosts.value_or(1);
    int gpus = defaults_.gpus.value_or(0);
    if (!ranks_.empty()) {
      int ranks = 0;
      for (const auto& [host, its] : ranks_) ranks += its;
      hosts = static_cast<int>(ranks_.size());
      gpus = gpus_of_a_host(ranks, hosts);
    }
    if (gpus == 0) {
      refuse("the output does not list the ranks", "name the measured cluster with --cluster");
    }
    if (!collective_) collective_ = guess(words, hosts * gpus);
    add(*collective_, hosts, gpus, size, us);
  }

  // Guesses the collective from the ratio of the two bandwidths.
  Collective guess(const std::vector<std::string>& words, int ranks) const {
    const auto algbw = parse_number<double>(words[time_ + 1]);
    const auto busbw = parse_number<double>(words[time_ + 2]);
    if (algbw && busbw && *algbw > 1) {
      const double factor = *busbw / *algbw;
      constexpr double kNear = 0.02;
      const auto is = [&](Collective c) {
        return std::abs(factor / bus_factor(c, ranks) - 1) < kNear;
      };
      if (ranks > 2 && is(Collective::all_reduce)) return Collective::all_reduce;
      const bool reduces = redop_ < words.size() && words[redop_] != "none";
      if (reduces && is(Collective::reduce_scatter)) return Collective::reduce_scatter;
    }
    refuse("the output does not name its collective", "name it with --collective");
  }

  const std::string& file_;
  const TableDefaults& defaults_;
  const std::function<Collective(const std::string&)>& named_;
  size_t number_ = 0;
  std::map<std::tuple<Collective, int, int, double>, std::vector<double>> calls_;
  std::string gpu_;
  std::optional<Collective> collective_;
  std::map<std::string, size_t> columns_;  // index of each column of a CSV table, by name
  std::set<std::string> systems_;
  std::map<std::string, int> ranks_;  // ranks per host, as nccl-tests lists them
  size_t time_ = 0;                   // index of the word that is the time; 0: no table has begun
  size_t redop_ = 0;
};

}  // namespace

MeasuredTable read_measured_table(const std::string& text, const std::string& file,
                                  const TableDefaults& defaults,
                                  const std::function<Collective(const std::string&)>& named) {
  return Reader(file, defaults, named).read(text);
}

}  // namespace tutti
