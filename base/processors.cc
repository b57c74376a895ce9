#include "base/processors.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "base/control_groups.h"
#include "base/text.h"

namespace tutti {

namespace {

constexpr std::string_view kQuota = " quota ";
constexpr int kMostProcessors = 1 << 14;

// Returns the number of processors whose time the group's files allow; 0: no limit.
double quota_of(const ControlGroup& group) {
  double time = 0;
  double period = 0;
  if (group.is_first_version) {
    std::ifstream times(group.path / "cpu.cfs_quota_us");  // -1 in the file: no limit
    std::ifstream periods(group.path / "cpu.cfs_period_us");
    times >> time;
    periods >> period;
  } else {
    std::ifstream file(group.path / "cpu.max");  // "150000 100000", or "max 100000"
    file >> time >> period;
  }
  return time > 0 && period > 0 ? time / period : 0;
}

// Returns the quota as a number of processors; 0: none. A group's quota also covers its child
// groups.
double quota() {
  double least = 0;
  for (const ControlGroup& group : control_groups("cpu")) {
    const double own = quota_of(group);
    if (own > 0) least = least == 0 ? own : std::min(least, own);
  }
  return least;
}

// Returns the processors of the calling thread; if unknown, all that are online.
std::vector<int> own_affinity() {
  std::vector<int> own;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> allowed(
      CPU_ALLOC(kMostProcessors), [](cpu_set_t* set) { CPU_FREE(set); });
  const size_t bytes = CPU_ALLOC_SIZE(kMostProcessors);
  const bool known = allowed && ::sched_getaffinity(0, bytes, allowed.get()) == 0;
  const int last = known ? kMostProcessors : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  for (int i = 0; i < last; ++i) {
    if (!known || CPU_ISSET_S(i, bytes, allowed.get())) own.push_back(i);
  }
  return own;
}

// Adds the processors of one range, "0-3" of "0-3,8". Unknown syntax (from another version) adds
// nothing.
void add_range(std::string_view text, std::set<int>& processors) {
  int first = 0;
  const char* const end = text.data() + text.size();
  const auto [middle, status] = std::from_chars(text.data(), end, first);
  int last = first;
  if (status != std::errc{}) return;
  if (middle != end) {
    if (*middle != '-' || std::from_chars(middle + 1, end, last).ptr != end) return;
  }
  for (int i = std::max(0, first); i <= std::min(last, kMostProcessors - 1); ++i) {
    processors.insert(i);
  }
}

std::set<int> processors_in(std::string_view ranges) {
  std::set<int> processors;
  for (const std::string& range : split(ranges, ',')) add_range(range, processors);
  return processors;
}

}  // namespace

bool may_run_on(std::string_view processors) {
  const std::set<int> wanted = processors_in(processors);
  return std::ranges::any_of(own_affinity(), [&](int own) { return wanted.contains(own); });
}

std::string own_processors() {
  const double limit = quota();
  const std::string processors = rank_ranges(own_affinity());
  return limit > 0 ? cat(processors, kQuota, limit) : processors;
}

int usable_processors(std::span<const std::string> processes) {
  std::set<int> processors;
  double limit = 0;
  bool unlimited = processes.empty();
  for (const std::string_view text : processes) {
    const size_t end = text.find(kQuota);
    processors.merge(processors_in(text.substr(0, end)));
    double own = 0;
    if (end != std::string_view::npos) {
      const std::string_view number = text.substr(end + kQuota.size());
      std::from_chars(number.data(), number.data() + number.size(), own);
    }
    unlimited |= own <= 0;
    limit = std::max(limit, own);
  }
  const int most = std::max(1, static_cast<int>(processors.size()));
  return unlimited ? most : std::clamp(static_cast<int>(std::ceil(limit)), 1, most);
}

int usable_processors() {
  const std::string own = own_processors();
  return usable_processors(std::span(&own, 1));
}

std::chrono::nanoseconds processor_time() {
  timespec now = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace tutti
