#include "tools/chaos/plan.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::tool::chaos {

namespace {

constexpr std::array<std::string_view, 13> kNames = {"kill",  "stop",  "pause", "stall", "truncate",
                                                     "delay", "full",  "cut",   "clock", "drop",
                                                     "lose",  "abort", "swap"};
constexpr std::string_view kLauncherName = "launcher";

std::string_view name(Kind kind) { return kNames[static_cast<size_t>(kind)]; }

// Writes only the members that differ from their defaults.
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
  } else if (!fault.hosts.empty()) {
    json["hosts"] = fault.hosts;
  } else {
    json["rank"] = fault.rank == kLauncher ? Json(kLauncherName) : Json(fault.rank);
  }
  if (fault.message > 0) json["message"] = fault.message;
  if (fault.message == 0) json["at_ms"] = fault.at_ms;
  if (fault.for_ms > 0) json["for_ms"] = fault.for_ms;
  return json;
}

[[noreturn]] void refuse(const Json& json, const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, cat(what, ": ", json.dump()), {.remedy = remedy});
}

void require_known(const Json& json, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : json.items()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    std::string names;
    for (const std::string_view one : known) names += cat(names.empty() ? "" : ", ", one);
    refuse(json, cat("unknown member '", name, "'"), cat("valid members: ", names));
  }
}

bool strikes_by_time(Kind kind) {
  return kind == Kind::stop || kind == Kind::pause || kind == Kind::cut || kind == Kind::clock ||
         kind == Kind::drop || kind == Kind::lose;
}

bool strikes_at_messages(Kind kind) {
  return kind == Kind::stall || kind == Kind::truncate || kind == Kind::delay ||
         kind == Kind::abort || kind == Kind::swap;
}

// Throws for faults that would not have the effect that their author intended.
void check(const Fault& fault, const Json& json) {
  const bool at_message = json.contains("message"), by_time = json.contains("at_ms");
  if (at_message && by_time) {
    refuse(json, "a fault has both `message` and `at_ms`", "remove one of them");
  }
  const bool needs_message = strikes_at_messages(fault.kind);
  if (needs_message != at_message && (needs_message || strikes_by_time(fault.kind))) {
    refuse(json, "the time of the fault does not match its kind",
           "use `message` for stall, truncate, swap, delay and abort; use `at_ms` for stop, pause, "
           "cut, clock, drop and lose; kill accepts either");
  }
  if (at_message && fault.message == 0) refuse(json, "`message` must be at least 1", "");
  if (at_message && fault.rank == kLauncher) {
    refuse(json, "the launcher sends no messages, so it cannot have `message`", "use at_ms");
  }
  const bool lasts = fault.kind == Kind::pause || fault.kind == Kind::delay;
  if (lasts && fault.for_ms == 0) {
    refuse(json, cat("a ", name(fault.kind), " requires for_ms, its length"),
           "add for_ms, or use stop or stall, which are permanent");
  }
}

int rank_from_json(const Json& json) {
  const Json& rank = json["rank"];
  if (rank == kLauncherName) return kLauncher;
  if (!rank.is_natural_number()) {
    refuse(json, "`rank` is not a rank", "use 0 or more, or \"launcher\"");
  }
  return rank.get<int>();
}

// Returns the number of hosts that a fault of that kind strikes.
size_t hosts_struck(Kind kind) { return kind == Kind::drop ? 2 : kind == Kind::lose ? 1 : 0; }

std::vector<std::string> hosts_from_json(Kind kind, const Json& json) {
  auto hosts = json["hosts"].get<std::vector<std::string>>();
  const bool same = hosts.size() == 2 && hosts[0] == hosts[1];
  if (hosts.size() != hosts_struck(kind) || same) {
    refuse(json, cat("a ", name(kind), " strikes ", hosts_struck(kind), " hosts"),
           "name two network namespaces to separate, or one to lose");
  }
  std::ranges::sort(hosts);  // both orders of a pair are the same fault
  return hosts;
}

void require_known(Kind kind, const Json& json) {
  switch (kind) {
    case Kind::full:
      return require_known(json, {"kind", "bytes"});
    case Kind::cut:
      return require_known(json, {"kind", "link", "at_ms", "message", "for_ms"});
    case Kind::clock:
      return require_known(json, {"kind", "shift_s", "at_ms", "message", "for_ms"});
    case Kind::drop:
      return require_known(json, {"kind", "hosts", "at_ms", "message", "for_ms"});
    case Kind::lose:
      return require_known(json, {"kind", "hosts", "at_ms", "message"});
    case Kind::pause:
    case Kind::delay:
      return require_known(json, {"kind", "rank", "at_ms", "message", "for_ms"});
    default:
      return require_known(json, {"kind", "rank", "at_ms", "message"});
  }
}

Fault fault_from_json(const Json& json) {
  const auto kind = json["kind"].get<std::string>();
  const auto* found = std::ranges::find(kNames, kind);
  if (found == kNames.end()) {
    throw Error(ErrorCode::invalid_argument, cat("unknown fault kind '", kind, "'"),
                {.remedy = "see the kinds in tools/chaos/README.md"});
  }
  Fault fault{.kind = static_cast<Kind>(found - kNames.begin())};
  require_known(fault.kind, json);
  if (fault.kind == Kind::full) {
    fault.bytes = json["bytes"];
    return fault;
  }
  if (fault.kind == Kind::cut) {
    fault.link = json["link"];
  } else if (fault.kind == Kind::clock) {
    fault.shift_s = json["shift_s"];
  } else if (hosts_struck(fault.kind) > 0) {
    fault.hosts = hosts_from_json(fault.kind, json);
  } else {
    fault.rank = rank_from_json(json);
  }
  fault.message = json.value<uint64_t>("message", 0);
  fault.at_ms = json.value<uint64_t>("at_ms", 0);
  fault.for_ms = json.value<uint64_t>("for_ms", 0);
  check(fault, json);
  return fault;
}

}  // namespace

bool has_fault(const Plan& plan, Kind kind) {
  return std::ranges::find(plan.faults, kind, &Fault::kind) != plan.faults.end();
}

bool is_harmless(const Fault& fault) {
  const bool is_short_loss = (fault.kind == Kind::cut || fault.kind == Kind::drop) &&
                             fault.for_ms > 0 && fault.for_ms <= kShortCutMs;
  return fault.kind == Kind::pause || fault.kind == Kind::delay || fault.kind == Kind::clock ||
         is_short_loss;
}

bool is_survivable(const Fault& fault) {
  const bool is_temporary_cut = fault.kind == Kind::cut && fault.for_ms > 0;
  return is_harmless(fault) || (fault.kind == Kind::kill && fault.rank != kLauncher) ||
         is_temporary_cut || fault.kind == Kind::drop || fault.kind == Kind::lose;
}

bool has_victim(const Fault& fault) {
  const bool is_of_a_rank =
      fault.kind != Kind::full && fault.kind != Kind::cut && fault.hosts.empty();
  return !is_harmless(fault) && is_of_a_rank && fault.rank != kLauncher;
}

std::string in_words(const Fault& fault) {
  if (fault.kind == Kind::full) return cat("a disk that is full at ", human_bytes(fault.bytes));
  const std::string rank =
      fault.rank == kLauncher ? std::string(kLauncherName) : cat("rank ", fault.rank);
  std::string of = fault.kind == Kind::cut ? fault.link : rank;
  if (!fault.hosts.empty()) of = fault.hosts[0];
  if (fault.kind == Kind::drop) of += cat(" from and to ", fault.hosts[1]);
  return cat(name(fault.kind),
             fault.kind == Kind::clock ? cat(" moved by ", fault.shift_s, " s") : cat(" of ", of),
             fault.message > 0 ? cat(" at its message ", fault.message)
                               : cat(" after ", fault.at_ms, " ms"),
             fault.for_ms > 0 ? cat(" for ", fault.for_ms, " ms") : "");
}

std::vector<std::string> hosts_of(const Plan& plan) {
  std::vector<std::string> hosts;
  for (const Fault& fault : plan.faults) {
    hosts.insert(hosts.end(), fault.hosts.begin(), fault.hosts.end());
  }
  return hosts;
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
  require_known(json, {"trials"});
  std::vector<Plan> plans;
  for (const Json& trial : json["trials"]) {
    require_known(trial, {"class", "faults"});
    Plan plan{.fault_class = trial.value<std::string>("class", "planned")};
    for (const Json& fault : trial["faults"]) plan.faults.push_back(fault_from_json(fault));
    if (plan.faults.empty()) refuse(trial, "a trial without faults", "remove it");
    plans.push_back(std::move(plan));
  }
  if (plans.empty()) refuse(json, "the plan has no trials", "");
  return plans;
}

}  // namespace tutti::tool::chaos
