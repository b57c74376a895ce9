#include "training/checkpoint/group.h"

#include <charconv>
#include <utility>

#include "base/error.h"

namespace tutti::training {
namespace {

// "ok RESULT", or the number of an ErrorCode and what the Error says.
constexpr std::string_view kGood = "ok ";

std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return std::string(kGood) + work();
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    const ErrorCode code = ours != nullptr ? ours->code() : ErrorCode::internal;
    return std::to_string(static_cast<int>(code)) + ' ' + error.what();
  }
}

// Before an error that all have found: the first one to leave would take the others' communicator
// along, and they would learn of that instead.
void wait_for_all(const Group& group) {
  try {
    group.gather_to_first("");
    group.from_first("");
  } catch (const Error&) {
    // Somebody is gone by now: at that time all were here, or it died of something else.
  }
}

}  // namespace

Group group_of_one() {
  return {.rank = 0,
          .size = 1,
          .gather_to_first = [](std::string text) { return std::vector{std::move(text)}; },
          .from_first = [](std::string text) { return text; }};
}

std::string done_by_first(const Group& group, const std::string& failed,
                          const std::function<std::string()>& work) {
  const std::string outcome = group.from_first(group.rank == 0 ? outcome_of(work) : "");
  if (outcome.starts_with(kGood)) return outcome.substr(kGood.size());
  wait_for_all(group);
  int code = static_cast<int>(ErrorCode::internal);
  std::from_chars(outcome.data(), outcome.data() + outcome.size(), code);
  throw Error(static_cast<ErrorCode>(code), failed + outcome.substr(outcome.find(' ') + 1));
}

}  // namespace tutti::training
