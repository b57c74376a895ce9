#include "training/run/stragglers.h"

#include <optional>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti::training {

double slowdown_of(const std::string& text, int rank) {
  constexpr double kMost = 1000;
  double slowdown = 1;
  for (const std::string& straggler : split(text, ',')) {
    const size_t sign = straggler.find(":x");
    std::optional<int> number;
    std::optional<double> factor;
    if (sign != straggler.npos) {
      number = parse_number<int>(straggler.substr(0, sign));
      factor = parse_number<double>(straggler.substr(sign + 2));
    }
    if (!number || *number < 0 || !factor || !(*factor >= 1) || *factor > kMost) {
      throw Error(
          ErrorCode::invalid_argument, cat("no rank is slow by ", in_quotes(straggler)),
          {.where = "--straggler",
           .remedy = "give a rank and how many times as long it takes, from 1 to 1000: 3:x4"});
    }
    if (*number == rank) slowdown = *factor;
  }
  return slowdown;
}

}  // namespace tutti::training
