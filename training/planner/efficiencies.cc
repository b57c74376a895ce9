#include "training/planner/efficiencies.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/names.h"
#include "base/text.h"

namespace tutti::training::planner {

namespace {

constexpr int kFormat = 1;
constexpr std::array<std::string_view, kSoftwares> kNames = {
    "megatron", "megatron-2021", "deepspeed", "fsdp", "fsdp-2023", "fsdp-compiled"};

// Names, values and priors, in the order of Knob.
constexpr std::array<KnobInfo, kKnobs> kInfos = {{
    {"products_volta", 0.720, 0.55, 0.3},
    {"products_ampere", 0.797, 0.80, 0.03},
    {"products_hopper", 0.698, 0.68, 0.06},
    {"products_blackwell", 0.461, 0.6, 0.3},
    {"eight_hopper", 0.581, 0.62, 0.2},
    {"eight_blackwell", 0.630, 0.53, 0.3},
    {"throttled", 0.791, 0.8, 0.15},
    {"attention_parts", 0.492, 0.45, 0.3},
    {"attention_ampere", 0.463, 0.55, 0.3},
    {"attention_hopper", 0.354, 0.45, 0.3},
    {"attention_blackwell", 0.301, 0.35, 0.4},
    {"attention_2023", 0.516, 0.6, 0.4},
    {"memory", 0.709, 0.75, 0.15},
    {"written", 0.743, 0.7, 0.3},
    {"experts", 0.346, 0.6, 0.4},
    {"dispatch", 0.718, 0.6, 0.4},
    {"slowed", 0.244, 0.25, 0.5},
    {"gathers_2021", 0.650, 0.65, 0.2},
    {"update", 28.1, 28, 0.2},
    {"start_deepspeed", 0.366, 0.4, 0.5},
    {"time_megatron_2021", 0.994, 1.0, 0.05},
    {"time_deepspeed", 0.952, 1.1, 0.2},
    {"time_fsdp", 1.079, 1.05, 0.1},
    {"time_fsdp_2023", 1.061, 1.05, 0.1},
    {"time_fsdp_compiled", 1.093, 1.05, 0.1},
    {"bytes_deepspeed", 1.147, 1.2, 0.3},
    {"bytes_fsdp", 2.266, 2.0, 0.5},
    {"bytes_fsdp_2023", 1.836, 1.8, 0.4},
    {"bytes_fsdp_compiled", 1.168, 1.1, 0.3},
}};

}  // namespace

std::string_view name(Software software) { return kNames[static_cast<size_t>(software)]; }

bool is_of_2021(Software software) {
  return software == Software::megatron_2021 || software == Software::deepspeed;
}

bool is_fsdp(Software software) {
  return software == Software::fsdp || software == Software::fsdp_2023 ||
         software == Software::fsdp_compiled;
}

Software software_named(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found != kNames.end()) return static_cast<Software>(found - kNames.begin());
  const std::vector<std::string> known(kNames.begin(), kNames.end());
  throw Error(ErrorCode::invalid_argument, cat("unknown program '", name, "'"),
              {.remedy = cat("use one of ", listed(known))});
}

const KnobInfo& info(Knob knob) { return kInfos[static_cast<size_t>(knob)]; }

Efficiencies::Efficiencies() {
  for (size_t i = 0; i < kKnobs; ++i) values_[i] = kInfos[i].value;
}

double Efficiencies::products(const Processor& processor, bool eight) const {
  const auto& e = *this;
  double part = 0;
  switch (processor.generation) {
    case Generation::volta:
      part = e[Knob::products_volta];
      break;
    case Generation::ampere:
      part = e[Knob::products_ampere];
      break;
    case Generation::hopper:
      part = eight ? e[Knob::eight_hopper] : e[Knob::products_hopper];
      break;
    case Generation::blackwell:
      part = eight ? e[Knob::eight_blackwell] : e[Knob::products_blackwell];
      break;
  }
  return part * (processor.is_throttled ? e[Knob::throttled] : 1);
}

double Efficiencies::attention(const Processor& processor, Software software) const {
  const auto& e = *this;
  double part = 0;
  switch (processor.generation) {
    case Generation::volta:
    case Generation::ampere:
      part = e[Knob::attention_ampere];
      break;
    case Generation::hopper:
      part = e[Knob::attention_hopper];
      if (software == Software::fsdp_2023) part *= e[Knob::attention_2023];
      break;
    case Generation::blackwell:
      part = e[Knob::attention_blackwell];
      break;
  }
  return part * (processor.is_throttled ? e[Knob::throttled] : 1);
}

double Efficiencies::time_of(Software software) const {
  const auto& e = *this;
  switch (software) {
    case Software::megatron:
      return 1;
    case Software::megatron_2021:
      return e[Knob::time_megatron_2021];
    case Software::deepspeed:
      return e[Knob::time_deepspeed];
    case Software::fsdp:
      return e[Knob::time_fsdp];
    case Software::fsdp_2023:
      return e[Knob::time_fsdp_2023];
    case Software::fsdp_compiled:
      return e[Knob::time_fsdp_compiled];
  }
  return 1;
}

double Efficiencies::bytes_of(Software software) const {
  const auto& e = *this;
  switch (software) {
    case Software::megatron:
    case Software::megatron_2021:
      return 1;
    case Software::deepspeed:
      return e[Knob::bytes_deepspeed];
    case Software::fsdp:
      return e[Knob::bytes_fsdp];
    case Software::fsdp_2023:
      return e[Knob::bytes_fsdp_2023];
    case Software::fsdp_compiled:
      return e[Knob::bytes_fsdp_compiled];
  }
  return 1;
}

std::string to_json(const Efficiencies& efficiencies) {
  Json json = {{"format", kFormat}};
  for (size_t i = 0; i < kKnobs; ++i) {
    json[std::string(kInfos[i].name)] = efficiencies[static_cast<Knob>(i)];
  }
  return json.dump(2) + "\n";
}

Efficiencies parse_efficiencies(const std::string& text) {
  const Json json = Json::parse(text);
  if (json.value("format", 0) != kFormat) {
    throw Error(ErrorCode::invalid_argument, "these efficiencies were fitted by another version",
                {.remedy = "fit them again: tutti plan --fit"});
  }
  Efficiencies efficiencies;
  for (size_t i = 0; i < kKnobs; ++i) {
    double& value = efficiencies[static_cast<Knob>(i)];
    value = json.value(kInfos[i].name, value);
    if (!std::isfinite(value) || value <= 0) {
      throw Error(ErrorCode::invalid_argument, cat("'", kInfos[i].name, "' is ", value),
                  {.remedy = "use a number above 0"});
    }
  }
  return efficiencies;
}

}  // namespace tutti::training::planner
