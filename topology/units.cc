#include "topology/units.h"

#include <charconv>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/text.h"

namespace tutti {

namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kBandwidths[] = {{"", 1},
                                {"GB/s", 1},
                                {"MB/s", 1e-3},
                                {"TB/s", 1e3},
                                {"Gbps", 0.125},
                                {"Gb/s", 0.125},
                                {"Gbit/s", 0.125},
                                {"Mbps", 0.125e-3},
                                {"Mb/s", 0.125e-3},
                                {"Mbit/s", 0.125e-3},
                                {"Tbps", 125},
                                {"Kbps", 0.125e-6},
                                {"bps", 0.125e-9}};
constexpr Unit kLatencies[] = {{"", 1}, {"us", 1}, {"ns", 1e-3}, {"ms", 1e3}, {"s", 1e6}};

double parse(std::string_view text, std::span<const Unit> units, std::string_view what,
             std::string_view example) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
  for (const Unit& unit : units) {
    const double scaled = value * unit.factor;
    if (status == std::errc{} && suffix == unit.name && std::isfinite(scaled) && scaled >= 0) {
      return scaled;
    }
  }
  throw Error(ErrorCode::invalid_argument, cat("invalid ", what, " '", text, "'"),
              {.remedy = cat("write it as ", example)});
}

}  // namespace

double parse_bandwidth(std::string_view text) {
  constexpr std::string_view kExample = "50GB/s or 400Gbps, above 0";
  const double GBps = parse(text, kBandwidths, "bandwidth", kExample);
  if (GBps > 0) return GBps;
  throw Error(ErrorCode::invalid_argument, cat("invalid bandwidth '", text, "'"),
              {.remedy = cat("write it as ", kExample)});
}

double parse_latency(std::string_view text) {
  return parse(text, kLatencies, "latency", "1us or 500ns");
}

}  // namespace tutti
