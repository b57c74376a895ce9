#include "base/processors.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace tutti {

namespace {

// In processors; 0: none.
double quota() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");  // "max 100000" or "150000 100000"
  double time = 0;
  double period = 0;
  if (v2 >> time >> period && period > 0) return time / period;
  std::ifstream v1_time("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");  // -1: none
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (v1_time >> time && v1_period >> period && time > 0 && period > 0) return time / period;
  return 0;
}

}  // namespace

int usable_processors() {
  const auto online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const double limit = quota();
  if (limit <= 0) return std::max(1, online);
  return std::clamp(static_cast<int>(std::ceil(limit)), 1, std::max(1, online));
}

}  // namespace tutti
