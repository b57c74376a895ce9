#include "training/run/stragglers.h"

#include <optional>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti::training {

std::map<int, double> stragglers_in(const std::string& text) {
  constexpr double kMost = 1000;
  std::map<int, double> stragglers;
  for (const std::string& straggler : split(text, ',')) {
    const size_t sign = straggler.find(":x");
    std::optional<int> rank;
    std::optional<double> factor;
    if (sign != straggler.npos) {
      rank = parse_number<int>(straggler.substr(0, sign));
      factor = parse_number<double>(straggler.substr(sign + 2));
    }
    if (!rank || *rank < 0 || !factor || !(*factor >= 1) || *factor > kMost) {
      throw Error(ErrorCode::invalid_argument, cat(in_quotes(straggler), " is not a straggler"),
                  {.where = "--straggler",
                   .remedy = "use a rank and its slowdown factor from 1 to 1000: 3:x4"});
    }
    stragglers[*rank] = *factor;
  }
  return stragglers;
}

}  // namespace tutti::training
