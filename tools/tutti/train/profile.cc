#include "tools/tutti/train/profile.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tutti::tool {
namespace {

using training::KernelTimes;
using training::KernelTotals;
using training::ProfilePart;
using training::StepProfile;

constexpr const char* kOther = "other";

// Name for the time outside of kernels.
constexpr const char* kNoKernel = "(no kernel)";

KernelTotals sum_of(const KernelTimes& kernels) {
  KernelTotals sum;
  for (const auto& [name, totals] : kernels) sum += totals;
  return sum;
}

// Returns the kernels, the longest first and kOther last.
std::vector<std::pair<std::string, KernelTotals>> rows_of_kernels(const StepProfile& profile) {
  const KernelTimes kernels = profile.kernels();
  std::vector<std::pair<std::string, KernelTotals>> rows(kernels.begin(), kernels.end());
  std::ranges::stable_sort(rows, std::greater(),
                           [](const auto& row) { return row.second.seconds; });
  rows.push_back({kOther, {.seconds = profile.seconds - sum_of(kernels).seconds}});
  return rows;
}

// Sums operations and bytes over the part's kernels.
KernelTotals totals_of(const ProfilePart& part) {
  KernelTotals totals = sum_of(part.kernels);
  totals.seconds = part.seconds;
  return totals;
}

double roofline(const KernelTotals& totals, const MeasuredPeaks& peaks) {
  return std::max(totals.operations / peaks.operations_per_second,
                  totals.bytes / peaks.bytes_per_second);
}

// Returns the sum of the kernels' rooflines.
double roofline(const KernelTimes& kernels, const MeasuredPeaks& peaks) {
  double seconds = 0;
  for (const auto& [name, totals] : kernels) seconds += roofline(totals, peaks);
  return seconds;
}

std::string number_or_dash(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return value > 0 ? text : "-";
}

void print_row(const std::string& name, const KernelTotals& totals, double step,
               double roofline_seconds) {
  const double time = totals.seconds;
  std::printf("  %-28s %9.3f %6.1f%% %9s %9s %8s %7s %8s\n", name.c_str(), 1e3 * time,
              100 * time / step, number_or_dash(1e-9 * totals.operations, 3).c_str(),
              number_or_dash(1e-6 * totals.bytes, 2).c_str(),
              number_or_dash(1e-9 * totals.operations / time, 1).c_str(),
              number_or_dash(1e-9 * totals.bytes / time, 1).c_str(),
              number_or_dash(100 * roofline_seconds / time, 0).c_str());
}

void print_head(const char* of) {
  std::printf("  %-28s %9s %7s %9s %9s %8s %7s %8s\n", of, "ms", "step", "GFLOP", "MB", "GFLOP/s",
              "GB/s", "% peak");
}

std::string name_of(const ProfilePart& part) {
  return part.unit.empty() ? part.phase : cat(part.unit, ' ', part.phase);
}

Json json_of_row(const KernelTotals& totals, double step, double roofline_seconds) {
  const double time = totals.seconds;
  const auto over_time = [&](double value) { return time > 0 ? value / time : 0.0; };
  return {{"ms", 1e3 * time},
          {"share", step > 0 ? time / step : 0.0},
          {"flops", totals.operations},
          {"bytes", totals.bytes},
          {"gflops", over_time(1e-9 * totals.operations)},
          {"gb_per_s", over_time(1e-9 * totals.bytes)},
          {"share_of_peak", over_time(roofline_seconds)}};
}

// Returns the milliseconds of each kernel in each unit, in the order of the units.
std::vector<std::pair<std::string, std::map<std::string, double>>> bars_of(
    const StepProfile& profile) {
  std::vector<std::pair<std::string, std::map<std::string, double>>> bars;
  for (const ProfilePart& part : profile.parts) {
    const std::string& name = part.unit.empty() ? part.phase : part.unit;
    if (bars.empty() || bars.back().first != name) bars.push_back({name, {}});
    std::map<std::string, double>& bar = bars.back().second;
    for (const auto& [kernel, totals] : part.kernels) bar[kernel] += 1e3 * totals.seconds;
    bar[kNoKernel] += 1e3 * (part.seconds - sum_of(part.kernels).seconds);
  }
  return bars;
}

}  // namespace

Picture profile_picture(const std::string& profile) {
  return Picture(profile == kProfileTable ? "" : profile, "--profile");
}

void print_profile(const StepProfile& profile, const MeasuredPeaks& peaks) {
  if (profile.steps == 0) return;
  std::printf(
      "profile of rank 0: mean of %lld steps, after %lld warm-up steps; measured peaks: %.1f "
      "GFLOP/s, %.1f GB/s\n",
      static_cast<long long>(profile.steps), static_cast<long long>(profile.skipped),
      1e-9 * peaks.operations_per_second, 1e-9 * peaks.bytes_per_second);
  print_head("unit and phase");
  for (const ProfilePart& part : profile.parts) {
    print_row(name_of(part), totals_of(part), profile.seconds, roofline(part.kernels, peaks));
  }
  print_head("kernel");
  KernelTotals all;
  for (const auto& [name, totals] : rows_of_kernels(profile)) {
    print_row(name, totals, profile.seconds, roofline(totals, peaks));
    all += totals;
  }
  print_row("step", all, profile.seconds, roofline(profile.kernels(), peaks));
}

Json json_of(const StepProfile& profile, const MeasuredPeaks& peaks) {
  Json units = Json::array();
  for (const ProfilePart& part : profile.parts) {
    Json row = json_of_row(totals_of(part), profile.seconds, roofline(part.kernels, peaks));
    row["unit"] = part.unit;
    row["phase"] = part.phase;
    row["kernels_ms"] = Json::object();
    for (const auto& [name, totals] : part.kernels) row["kernels_ms"][name] = 1e3 * totals.seconds;
    units.push_back(std::move(row));
  }
  Json kernels = Json::array();
  for (const auto& [name, totals] : rows_of_kernels(profile)) {
    Json row = json_of_row(totals, profile.seconds, roofline(totals, peaks));
    row["kernel"] = name;
    row["calls"] = totals.calls;
    kernels.push_back(std::move(row));
  }
  return {{"steps", profile.steps},
          {"skipped_steps", profile.skipped},
          {"step_ms", 1e3 * profile.seconds},
          {"peak_gflops", 1e-9 * peaks.operations_per_second},
          {"peak_gb_per_s", 1e-9 * peaks.bytes_per_second},
          {"units", std::move(units)},
          {"kernels", std::move(kernels)}};
}

void plot_profile(const Picture& picture, const StepProfile& profile) {
  if (!picture.wanted() || profile.steps == 0) return;
  std::vector<std::string> kernels;
  for (const auto& [name, totals] : rows_of_kernels(profile)) {
    kernels.push_back(name == kOther ? kNoKernel : name);
  }
  std::ostringstream out;
  out << "$bars << END\nunit";
  for (const std::string& kernel : kernels) out << " \"" << kernel << '"';
  out << '\n';
  for (auto& [unit, times] : bars_of(profile)) {
    out << '"' << unit << '"';
    for (const std::string& kernel : kernels) {
      const auto time = times.find(kernel);
      out << ' ' << (time == times.end() ? 0.0 : time->second);
    }
    out << '\n';
  }
  out << "END\n"
      << gnuplot_title(cat("a step takes ", number_or_dash(1e3 * profile.seconds, 1), " ms"))
      << "set style data histograms\nset style histogram rowstacked\nset style fill solid 0.8\n"
         "set boxwidth 0.8\nset ylabel 'milliseconds of a step'\nset yrange [0:*]\n"
         "set grid ytics lc rgb '#c0c0c0'\nset xtics rotate by -45 noenhanced\n"
         "set key outside right noenhanced font ',11'\n"
      << "plot for [i=2:" << kernels.size() + 1
      << "] $bars using i:xtic(1) title columnheader(i) "
         "lc rgb hsv2rgb(0.618*i - floor(0.618*i), 0.5 + 0.25*(i%2), 0.9 - 0.25*(i%3 == 0))\n";
  picture.draw(out.str());
}

}  // namespace tutti::tool
