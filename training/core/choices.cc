#include "training/core/choices.h"

#include <algorithm>

#include "base/printable.h"
#include "base/text.h"

namespace tutti {

std::string choice_problem(const std::string& word, const std::vector<std::string>& choices) {
  if (std::ranges::find(choices, word) != choices.end()) return {};
  std::string names;
  for (const std::string& choice : choices) names += cat(names.empty() ? "" : ", ", choice);
  const std::string close = nearest(word, choices);
  return cat(in_quotes(word), " is not one of ", names,
             close.empty() ? "" : cat(" (did you mean ", close, "?)"));
}

}  // namespace tutti
