#include "tools/tutti/bench/report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/reduce.h"
#include "base/text.h"
#include "bench/peers/peer.h"
#include "tools/tutti/commands.h"
#include "transport/bootstrap/control/init_stats.h"

namespace tutti::tool {

namespace {

void finish_file(std::ofstream& file, const std::string& path) {
  if (!file.flush()) throw system_error(cat("cannot write ", path), errno);
}

// Returns the transport in use. A single rank uses no transport, so returns the requested one.
std::string shown_transport(const Communicator& comm, const BenchOptions& options) {
  return comm.size() == 1 && !options.transport.empty() ? options.transport : comm.transport();
}

std::string note(const BenchRow& row) {
  return cat(row.is_best ? "best" : "", row.is_best && row.is_auto ? " " : "",
             row.is_auto ? "auto" : "");
}

std::string fixed(std::optional<double> number, int digits) {
  if (!number) return "-";
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << *number;
  return text.str();
}

// Quotes a cell if it contains commas, as names of compositions do.
std::string csv_cell(const std::string& text) {
  return text.find(',') == std::string::npos ? text : cat('"', text, '"');
}

std::string csv_cell(std::optional<double> number) { return number ? cat(*number) : ""; }

Json or_null(std::optional<double> number) { return number ? Json(*number) : nullptr; }

// Accumulates the geometric mean and the maximum of factors.
struct Factors {
  double log_sum = 0;
  double worst = 0;
  int count = 0;

  void add(std::optional<double> factor) {
    if (!factor) return;
    log_sum += std::log(*factor);
    worst = std::max(worst, *factor);
    ++count;
  }
  double mean() const { return std::exp(log_sum / count); }
  void print(const std::string& over) const {
    if (count == 0) return;
    std::printf("# time over %s: geometric mean %.3f, worst %.3f\n", over.c_str(), mean(), worst);
  }
};

}  // namespace

std::optional<double> BenchRow::ratio(size_t peer) const {
  if (!peer_us[peer] || *peer_us[peer] <= 0) return std::nullopt;
  return time_us / *peer_us[peer];
}

BenchReport::BenchReport(const BenchOptions& options, const bench::Case& c,
                         const Communicator* comm)
    : options_(options),
      case_(c),
      comm_(comm),
      json_(open_for_writing(options.json)),
      csv_(open_for_writing(options.csv)),
      plot_(options.plot) {}

bool BenchReport::stands_for_tutti(const BenchRow& row) const {
  const bool does_something = row.count > 0 || case_.collective == Collective::barrier;
  return does_something && (!options_.all() || row.is_auto);
}

// Warns if the ranks share cores, which makes calls far slower.
void BenchReport::print_sharing() const {
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  // true if `-n` has started all ranks on this host
  const bool all_here = options_.ranks == comm_->size();
  if (!all_here || comm_->size() <= cores) return;
  std::printf("# %d ranks share %ld cores: the times include waiting for a core\n", comm_->size(),
              cores);
}

void BenchReport::print_header() const {
  std::printf("# tutti bench %s: %d ranks, %s%s, %s, transport %s, %s buffers, %s%s%s%s\n",
              bench::name(case_.collective, case_.uneven).c_str(), comm_->size(),
              has_root(case_.collective) ? cat("root ", case_.root, ", ").c_str() : "",
              std::string(name(case_.dtype)).c_str(), std::string(name(case_.op)).c_str(),
              shown_transport(*comm_, options_).c_str(),
              cat(options_.buffers, case_.on_device ? " GPU" : "").c_str(),
              std::string(name(selected_instruction_set())).c_str(),
              case_.graph ? ", as a graph" : "", case_.deterministic ? ", deterministic" : "",
              case_.wire == WireFormat::plain ? "" : cat(", as ", name(case_.wire)).c_str());
  if (options_.load > 0) std::printf("# beside %d busy processes\n", options_.load);
  if (options_.quota > 0) std::printf("# within the time of %g processors\n", options_.quota);
  std::printf("%12s %12s %6s %-20s %12s %12s %10s %10s %6s", "bytes", "count", "type", "algorithm",
              "time us", "min us", "algbw GB/s", "busbw GB/s", "wrong");
  if (options_.is_shared()) std::printf(" %12s", "p90 us");
  if (options_.in_place) std::printf(" %12s %10s", "in-place us", "busbw GB/s");
  for (const std::string& peer : options_.peers) {
    std::printf(" %12s %7s", (peer + " us").c_str(), "ratio");
    if (options_.is_shared()) std::printf(" %12s", "p90 us");
  }
  if (options_.digest) std::printf(" %-64s", "digest");
  std::printf("\n");
  std::fflush(stdout);
}

void BenchReport::add(const BenchRow& row) {
  if (options_.all() && !rows_.empty() && rows_.back().bytes != row.bytes) std::printf("\n");
  rows_.push_back(row);
  print(row);
}

void BenchReport::print(const BenchRow& row) const {
  std::printf("%12lu %12lu %6s %-20s %12.2f %12.2f %10.3f %10.3f %6lu",
              static_cast<unsigned long>(row.bytes), static_cast<unsigned long>(row.count),
              std::string(name(case_.dtype)).c_str(), row.algorithm.c_str(), row.time_us,
              row.min_us, row.algbw, row.busbw, static_cast<unsigned long>(row.wrong));
  if (options_.is_shared()) std::printf(" %12.2f", row.p90_us);
  if (options_.in_place) std::printf(" %12.2f %10.3f", row.in_place_us, row.in_place_busbw);
  for (size_t i = 0; i < row.peer_us.size(); ++i) {
    std::printf(" %12s %7s", fixed(row.peer_us[i], 2).c_str(), fixed(row.ratio(i), 3).c_str());
    if (options_.is_shared()) std::printf(" %12s", fixed(row.peer_p90_us[i], 2).c_str());
  }
  if (options_.digest) std::printf(" %s", row.digest.c_str());
  if (row.is_best || row.is_auto) std::printf("  %s", note(row).c_str());
  std::printf("\n");
  std::fflush(stdout);
}

// Prints the average bus bandwidth, as the last line of an nccl-tests table does.
void BenchReport::print_average() const {
  if (options_.all() || rows_.empty() || case_.collective == Collective::barrier) return;
  double sum = 0;
  double columns = 0;
  for (const BenchRow& row : rows_) {
    sum += row.busbw + row.in_place_busbw;
    columns += options_.in_place ? 2 : 1;
  }
  std::printf("# Avg bus bandwidth: %.3f GB/s\n", sum / columns);
}

void BenchReport::finish() {
  print_average();
  print_sharing();
  print_ratios();
  print_ratios_to_best_mpi();
  print_choices();
  if (json_.is_open()) write_json();
  if (csv_.is_open()) write_csv();
  if (plot_.wanted()) draw_plot();
}

void BenchReport::print_ratios() const {
  for (size_t i = 0; i < options_.peers.size(); ++i) {
    Factors factors;
    for (const BenchRow& row : rows_) {
      if (stands_for_tutti(row)) factors.add(row.ratio(i));
    }
    factors.print(options_.peers[i] + "'s");
  }
}

void BenchReport::print_ratios_to_best_mpi() const {
  std::vector<size_t> libraries;
  std::string names;
  for (size_t i = 0; i < options_.peers.size(); ++i) {
    if (!bench::find_peer(options_.peers[i], case_.on_device).is_mpi) continue;
    names += cat(libraries.empty() ? "" : ", ", options_.peers[i]);
    libraries.push_back(i);
  }
  if (libraries.size() < 2) return;
  Factors factors;
  for (const BenchRow& row : rows_) {
    if (!stands_for_tutti(row)) continue;
    std::optional<double> largest;
    for (const size_t i : libraries) largest = std::max(largest, row.ratio(i));
    factors.add(largest);
  }
  factors.print("the best of " + names);
}

// Prints how close the choices of `auto` are to the best algorithm.
void BenchReport::print_choices() const {
  if (!options_.all()) return;
  Factors factors;
  int best = 0;
  for (const BenchRow& row : rows_) {
    if (!row.is_auto) continue;
    const auto fastest = std::ranges::find_if(
        rows_, [&](const BenchRow& r) { return r.bytes == row.bytes && r.is_best; });
    best += row.is_best ? 1 : 0;
    factors.add(row.time_us / fastest->time_us);
  }
  if (factors.count == 0) return;
  std::printf(
      "# auto took the best for %d of %d sizes; its time over the best's: geometric mean "
      "%.3f, worst %.3f\n",
      best, factors.count, factors.mean(), factors.worst);
}

void BenchReport::write_json() {
  Json document = {{"collective", bench::name(case_.collective, case_.uneven)},
                   {"ranks", comm_->size()},
                   {"dtype", name(case_.dtype)},
                   {"op", name(case_.op)},
                   {"transport", shown_transport(*comm_, options_)},
                   {"instruction_set", name(selected_instruction_set())},
                   {"results", Json::array()}};
  const InitStats& init = comm_->init_stats();
  document["init"] = {{"seconds", init.seconds},
                      {"messages", init.all.messages},
                      {"bytes", init.all.bytes},
                      {"rank0_connections", init.most_held}};
  if (has_root(case_.collective)) document["root"] = case_.root;
  if (options_.buffers != "user") document["buffers"] = options_.buffers;
  if (case_.on_device) document["device"] = options_.device;
  if (case_.graph) document["graph"] = true;
  if (options_.load > 0) document["load"] = options_.load;
  if (options_.quota > 0) document["quota"] = options_.quota;
  if (case_.wire != WireFormat::plain) document["wire"] = name(case_.wire);
  for (const BenchRow& row : rows_) {
    Json result = {
        {"bytes", row.bytes},      {"count", row.count},      {"algorithm", row.algorithm},
        {"time_us", row.time_us},  {"min_us", row.min_us},    {"p90_us", row.p90_us},
        {"algbw_GBps", row.algbw}, {"busbw_GBps", row.busbw}, {"wrong", row.wrong}};
    if (options_.in_place) {
      result["in_place"] = {{"time_us", row.in_place_us}, {"busbw_GBps", row.in_place_busbw}};
    }
    if (options_.digest) result["digest"] = row.digest;
    if (case_.wire != WireFormat::plain) result["wire_bytes"] = row.wire_bytes;
    if (options_.all()) {
      result["best"] = row.is_best;
      result["auto"] = row.is_auto;
    }
    for (size_t i = 0; i < row.peer_us.size(); ++i) {
      result["peers"][options_.peers[i]] = {{"time_us", or_null(row.peer_us[i])},
                                            {"p90_us", or_null(row.peer_p90_us[i])},
                                            {"ratio", or_null(row.ratio(i))}};
    }
    document["results"].push_back(std::move(result));
  }
  json_ << document.dump(2) << '\n';
  finish_file(json_, options_.json);
}

void BenchReport::draw_plot() const {
  std::vector<PlotLine> lines = {{.title = "Tutti", .points = {}}};
  for (const std::string& peer : options_.peers) {
    const bench::Peer& known = bench::find_peer(peer, case_.on_device);
    lines.push_back({.title = known.title, .is_reference = !known.is_library(), .points = {}});
  }
  for (const BenchRow& row : rows_) {
    if (!stands_for_tutti(row)) continue;
    lines[0].points.emplace_back(row.bytes, row.time_us);
    for (size_t i = 0; i < row.peer_us.size(); ++i) {
      if (row.peer_us[i]) lines[i + 1].points.emplace_back(row.bytes, *row.peer_us[i]);
    }
  }
  std::erase_if(lines, [](const PlotLine& line) { return line.points.empty(); });
  plot_.draw(cat(bench::name(case_.collective, case_.uneven), ", ", comm_->size(), " ranks, ",
                 name(case_.dtype), ' ', reduces(case_.collective) ? cat(name(case_.op), ' ') : "",
                 "over ", shown_transport(*comm_, options_)),
             lines);
}

void BenchReport::write_csv() {
  csv_ << "bytes,count,algorithm,time_us,min_us,algbw_GBps,busbw_GBps,wrong";
  if (options_.in_place) csv_ << ",in_place_us,in_place_busbw_GBps";
  for (const std::string& peer : options_.peers) csv_ << ',' << peer << "_us," << peer << "_ratio";
  csv_ << (options_.digest ? ",digest" : "") << (options_.all() ? ",note" : "") << '\n';
  for (const BenchRow& row : rows_) {
    csv_ << row.bytes << ',' << row.count << ',' << csv_cell(row.algorithm) << ',' << row.time_us
         << ',' << row.min_us << ',' << row.algbw << ',' << row.busbw << ',' << row.wrong;
    if (options_.in_place) csv_ << ',' << row.in_place_us << ',' << row.in_place_busbw;
    for (size_t i = 0; i < row.peer_us.size(); ++i) {
      csv_ << ',' << csv_cell(row.peer_us[i]) << ',' << csv_cell(row.ratio(i));
    }
    if (options_.digest) csv_ << ',' << row.digest;
    if (options_.all()) csv_ << ',' << note(row);
    csv_ << '\n';
  }
  finish_file(csv_, options_.csv);
}

}  // namespace tutti::tool
