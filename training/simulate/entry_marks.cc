#include "training/simulate/entry_marks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {

std::vector<double> cut_into_buckets(double gradient_bytes, double bucket_bytes, int64_t most) {
  const double count = std::ceil(gradient_bytes / bucket_bytes);
  if (count > static_cast<double>(most)) {
    throw Error(ErrorCode::unsupported, cat(count, " buckets per chunk are too many to simulate"),
                {.remedy = "use larger buckets"});
  }
  std::vector<double> buckets(static_cast<size_t>(count), bucket_bytes);
  if (!buckets.empty()) buckets.back() = gradient_bytes - (count - 1) * bucket_bytes;
  return buckets;
}

std::vector<Mark> marks_of(const std::vector<double>& buckets, int sums) {
  std::vector<Mark> marks;
  const double all = std::accumulate(buckets.begin(), buckets.end(), 0.0);
  double bytes = 0;
  for (const double bucket : buckets) {
    bytes += bucket;
    marks.push_back({.at = bytes / all, .completes_bucket = true});
  }
  for (int i = 1; i <= sums; ++i) {
    marks.push_back({.at = static_cast<double>(i) / sums, .sums = true});
  }
  if (marks.empty()) marks.emplace_back();
  std::ranges::stable_sort(marks, {}, &Mark::at);
  return marks;
}

}  // namespace tutti::training
