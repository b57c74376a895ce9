#include "training/pipeline/schedules.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training::pipeline {
namespace {

int next_multiple(int number, int of) { return (number + of - 1) / of * of; }

std::string not_positive(const Shape& shape) {
  for (const auto& [value, what] :
       {std::pair(shape.ranks, "rank"), std::pair(shape.micro_batches, "micro-batch"),
        std::pair(shape.virtual_stages, "chunk per rank"),
        std::pair(shape.accumulated, "micro-batch per update")}) {
    if (value < 1) return cat("a pipeline requires at least one ", what, ", not ", value);
  }
  return "";
}

std::string many_chunks(const Shape& shape) {
  if (shape.virtual_stages == 1) return "";
  return cat("only interleaved supports several chunks per rank (requested: ", shape.virtual_stages,
             ")");
}

std::string many_updates(const Shape& shape) {
  if (shape.accumulated == 1) return "";
  return cat(
      "only pipedream and pipedream-2bw support updates after some micro-batches (requested: ",
      shape.accumulated, "); the other schedules have one update, after all micro-batches");
}

std::string first_of(std::initializer_list<std::string> reasons) {
  for (const std::string& reason : reasons) {
    if (!reason.empty()) return reason;
  }
  return "";
}

std::string why_not_flushed(const Shape& shape) {
  return first_of({not_positive(shape), many_chunks(shape), many_updates(shape)});
}

std::string why_not_interleaved(const Shape& shape) {
  return first_of({not_positive(shape), many_updates(shape)});
}

std::string why_not_chimera(const Shape& shape) {
  if (std::string reason = why_not_flushed(shape); !reason.empty()) return reason;
  if (shape.ranks % 2 != 0) {
    return cat("Chimera requires an even number of ranks, not ", shape.ranks,
               ": each rank has a partner with the same chunks");
  }
  if (shape.micro_batches < 2) {
    return "Chimera requires at least two micro-batches, one for each direction";
  }
  return "";
}

std::string why_not_pipedream(const Shape& shape) {
  if (std::string reason = first_of({not_positive(shape), many_chunks(shape)}); !reason.empty()) {
    return reason;
  }
  if (shape.micro_batches % shape.accumulated != 0) {
    return cat(shape.micro_batches, " micro-batches are not divisible into updates of ",
               shape.accumulated);
  }
  return "";
}

std::string why_not_pipedream_2bw(const Shape& shape) {
  if (std::string reason = why_not_pipedream(shape); !reason.empty()) return reason;
  // see the derivation in pipedream_2bw.cc
  if (shape.accumulated < shape.ranks - 1) {
    return cat("PipeDream-2BW on ", shape.ranks, " ranks requires updates of at least ",
               shape.ranks - 1, " micro-batches, not ", shape.accumulated,
               ": the third update starts before the first completes");
  }
  return "";
}

int any_number(const Shape& shape) { return shape.micro_batches; }
int at_least_two(const Shape& shape) { return std::max(shape.micro_batches, 2); }
int whole_updates(const Shape& shape) {
  return next_multiple(shape.micro_batches, shape.accumulated);
}

constexpr ScheduleKind kKinds[] = {
    {.name = "gpipe",
     .what = "all forwards, then all backwards (GPipe, 2019)",
     .make = [](const Shape& shape) { return gpipe(shape.ranks, shape.micro_batches); },
     .why_not = why_not_flushed,
     .round_up = any_number},
    {.name = "1f1b",
     .what = "alternating forwards and backwards: less memory (PipeDream-flush, 2021)",
     .make = [](const Shape& shape) { return one_f_one_b(shape.ranks, shape.micro_batches); },
     .why_not = why_not_flushed,
     .round_up = any_number},
    {.name = "interleaved",
     .what = "1f1b with several chunks per rank: less idle time, more messages (Megatron-LM, 2021)",
     .has_virtual_stages = true,
     .make =
         [](const Shape& shape) {
           return interleaved(shape.ranks, shape.micro_batches, shape.virtual_stages);
         },
     .why_not = why_not_interleaved,
     .round_up = any_number},
    {.name = "zb-h1",
     .what = "weight gradients in the idle times of 1f1b, with the same memory (Zero Bubble, 2023)",
     .make = [](const Shape& shape) { return zero_bubble_h1(shape.ranks, shape.micro_batches); },
     .why_not = why_not_flushed,
     .round_up = any_number},
    {.name = "zb-h2",
     .what = "no idle time between steps, with twice the memory (Zero Bubble, 2023)",
     .make = [](const Shape& shape) { return zero_bubble_h2(shape.ranks, shape.micro_batches); },
     .why_not = why_not_flushed,
     .round_up = any_number},
    {.name = "chimera",
     .what = "two pipelines in opposite directions, two copies of the weights (Chimera, 2021)",
     .make = [](const Shape& shape) { return chimera(shape.ranks, shape.micro_batches); },
     .why_not = why_not_chimera,
     .round_up = at_least_two},
    {.name = "pipedream",
     .what = "1f1b without flushes: each rank's newest weights, stashed (PipeDream, 2019)",
     .updates = Updates::latest,
     .make =
         [](const Shape& shape) {
           return pipedream(shape.ranks, shape.micro_batches, shape.accumulated);
         },
     .why_not = why_not_pipedream,
     .round_up = whole_updates},
    {.name = "pipedream-2bw",
     .what =
         "1f1b without flushes: two versions, one update stale on all ranks (PipeDream-2BW, 2021)",
     .updates = Updates::delayed,
     .make =
         [](const Shape& shape) {
           return pipedream_2bw(shape.ranks, shape.micro_batches, shape.accumulated);
         },
     .why_not = why_not_pipedream_2bw,
     .round_up = whole_updates},
};

struct Alias {
  std::string_view alias;  // normalized by plain()
  std::string_view name;
};

constexpr Alias kAliases[] = {
    {"onefoneb", "1f1b"},      {"pipedreamflush", "1f1b"},
    {"dapple", "1f1b"},        {"interleaved1f1b", "interleaved"},
    {"zerobubbleh1", "zb-h1"}, {"zerobubbleh2", "zb-h2"},
    {"2bw", "pipedream-2bw"},
};

// Returns the normalized name: "zbh1" for "ZB_H1".
std::string plain(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c == '-' || c == '_') continue;
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

[[noreturn]] void refuse_name(std::string_view name) {
  std::vector<std::string> known;
  std::string list;
  for (const ScheduleKind& kind : kKinds) {
    known.emplace_back(kind.name);
    list += cat(list.empty() ? "" : ", ", kind.name);
  }
  const std::string meant = nearest(name, known);
  throw Error(ErrorCode::invalid_argument, cat("unknown pipeline schedule \"", name, '"'),
              {.cause = meant.empty() ? "" : cat("did you mean ", meant, "?"),
               .remedy = cat("use one of ", list)});
}

}  // namespace

std::span<const ScheduleKind> all_schedules() { return kKinds; }

const ScheduleKind& schedule_named(std::string_view name) {
  std::string wanted = plain(name);
  const auto* alias = std::ranges::find(kAliases, wanted, &Alias::alias);
  if (alias != std::end(kAliases)) wanted = plain(alias->name);
  const auto* kind = std::ranges::find(
      kKinds, wanted, [](const ScheduleKind& candidate) { return plain(candidate.name); });
  if (kind == std::end(kKinds)) refuse_name(name);
  return *kind;
}

Schedule make_schedule(const ScheduleKind& kind, const Shape& shape) {
  const std::string reason = kind.why_not(shape);
  if (reason.empty()) return kind.make(shape);
  throw Error(ErrorCode::invalid_argument, cat("invalid ", kind.name, " schedule: ", reason),
              {.where = cat(shape.ranks, " ranks, ", shape.micro_batches, " micro-batches, ",
                            shape.virtual_stages, " chunks per rank"),
               .remedy = "change the named value, or use another schedule"});
}

}  // namespace tutti::training::pipeline
