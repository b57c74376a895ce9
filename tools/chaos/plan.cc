#include "tools/chaos/plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::tool::chaos {

namespace {

constexpr std::array<std::string_view, 9> kNames = {"kill",  "stop", "pause", "stall", "truncate",
                                                    "delay", "full", "cut",   "clock"};
constexpr std::string_view kLauncherName = "launcher";

std::string_view name(Kind kind) { return kNames[static_cast<size_t>(kind)]; }

// Those members only that say something.
Json to_json(const Fault& fault) {
  Json json = {{"kind", std::string(name(fault.kind))}};
  if (fault.kind == Kind::full) {
    json["bytes"] = fault.bytes;
    return json;
  }
  if (fault.kind == Kind::cut) {
    json["link"] = fault.link;
  } else if (fault.kind == Kind::clock) {
    json["shift_s"] = fault.shift_s;
  } else {
    json["rank"] = fault.rank == kLauncher ? Json(kLauncherName) : Json(fault.rank);
  }
  if (fault.message > 0) json["message"] = fault.message;
  if (fault.message == 0) json["at_ms"] = fault.at_ms;
  if (fault.for_ms > 0) json["for_ms"] = fault.for_ms;
  return json;
}

void check(const Fault& fault, const std::string& text) {
  const bool at_message =
      fault.kind == Kind::stall || fault.kind == Kind::truncate || fault.kind == Kind::delay;
  const bool by_time = fault.kind == Kind::stop || fault.kind == Kind::pause ||
                       fault.kind == Kind::cut || fault.kind == Kind::clock;
  const bool fits = fault.message > 0 ? !by_time && fault.rank != kLauncher : !at_message;
  if (fits && fault.rank >= kLauncher) return;
  throw Error(ErrorCode::invalid_argument, cat("there is no such fault: ", text),
              {.remedy = "stall, truncate and delay strike at a rank's message, stop, pause, cut "
                         "and clock at a time; kill does both"});
}

Fault fault_from_json(const Json& json) {
  const auto kind = json["kind"].get<std::string>();
  const auto* found = std::ranges::find(kNames, kind);
  if (found == kNames.end()) {
    throw Error(ErrorCode::invalid_argument, cat("a plan has no faults of kind '", kind, "'"));
  }
  Fault fault{.kind = static_cast<Kind>(found - kNames.begin())};
  if (fault.kind == Kind::full) {
    fault.bytes = json["bytes"];
    return fault;
  }
  if (fault.kind == Kind::cut) {
    fault.link = json["link"];
  } else if (fault.kind == Kind::clock) {
    fault.shift_s = json["shift_s"];
  } else {
    const Json& rank = json["rank"];
    fault.rank = rank == kLauncherName ? kLauncher : rank.get<int>();
  }
  fault.message = json.value<uint64_t>("message", 0);
  fault.at_ms = json.value<uint64_t>("at_ms", 0);
  fault.for_ms = json.value<uint64_t>("for_ms", 0);
  check(fault, json.dump());
  return fault;
}

}  // namespace

bool is_harmless(const Fault& fault) {
  const bool is_short_cut = fault.kind == Kind::cut && fault.for_ms > 0;
  return fault.kind == Kind::pause || fault.kind == Kind::delay || fault.kind == Kind::clock ||
         is_short_cut;
}

bool is_survivable(const Fault& fault) {
  return is_harmless(fault) || (fault.kind == Kind::kill && fault.rank != kLauncher);
}

bool has_victim(const Fault& fault) {
  const bool is_of_a_rank = fault.kind != Kind::full && fault.kind != Kind::cut;
  return !is_harmless(fault) && is_of_a_rank && fault.rank != kLauncher;
}

std::string in_words(const Fault& fault) {
  if (fault.kind == Kind::full) return cat("a disk that is full at ", human_bytes(fault.bytes));
  const std::string rank =
      fault.rank == kLauncher ? std::string(kLauncherName) : cat("rank ", fault.rank);
  const std::string of = fault.kind == Kind::cut ? fault.link : rank;
  return cat(name(fault.kind),
             fault.kind == Kind::clock ? cat(" moved by ", fault.shift_s, " s") : cat(" of ", of),
             fault.message > 0 ? cat(" at its message ", fault.message)
                               : cat(" after ", fault.at_ms, " ms"),
             fault.for_ms > 0 ? cat(" for ", fault.for_ms, " ms") : "");
}

std::string as_setting(const Fault& fault) {
  if (fault.message == 0) return {};
  return cat(name(fault.kind), ":", fault.rank, ":", fault.message,
             fault.kind == Kind::delay ? cat(":", fault.for_ms) : "");
}

Json to_json(const std::vector<Plan>& plans) {
  Json trials = Json::array();
  for (const Plan& plan : plans) {
    Json faults = Json::array();
    for (const Fault& fault : plan.faults) faults.push_back(to_json(fault));
    trials.push_back({{"class", plan.fault_class}, {"faults", faults}});
  }
  return {{"trials", trials}};
}

std::vector<Plan> plans_from_json(const Json& json) {
  std::vector<Plan> plans;
  for (const Json& trial : json["trials"]) {
    Plan plan{.fault_class = trial.value<std::string>("class", "planned")};
    for (const Json& fault : trial["faults"]) plan.faults.push_back(fault_from_json(fault));
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace tutti::tool::chaos
