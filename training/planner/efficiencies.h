// The few numbers by which programs for training fall short of what processors can do at most. They
// were fitted to published runs (README.md); `tutti plan --fit` fits them to a user's own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collectives/cost/prediction_errors.h"
#include "training/planner/processor.h"

namespace tutti::training::planner {

// A program for training: which operators are fused, and what goes on beside what.
enum class Software : uint8_t {
  megatron,       // today's: flash attention, sums beside backward
  megatron_2021,  // attention in parts, sums after backward
  deepspeed,      // the latter with DeepSpeed's pipelines and ZeRO
  fsdp,           // PyTorch's, operators one by one
  fsdp_2023,      // the same with the attention of then
  fsdp_compiled,
};
inline constexpr size_t kSoftwares = 6;
std::string_view name(Software software);
// Attention in parts, gradients that are summed after backward.
bool is_of_2021(Software software);
bool is_fsdp(Software software);
Software software_named(std::string_view name);  // throws Error(invalid_argument) that lists them

enum class Knob : uint8_t {
  products_volta,  // part of the peak that large products reach
  products_ampere,
  products_hopper,
  products_blackwell,
  eight_hopper,  // the same of 8 bits
  eight_blackwell,
  throttled,         // of that, where power is limited
  attention_parts,   // part of the peak in attention of several operators
  attention_ampere,  // in flash attention
  attention_hopper,
  attention_blackwell,
  attention_2023,   // of the latter, in the first kernels for Hopper
  memory,           // part of the memory's bandwidth
  written,          // part of a product's results that are written while nothing is computed
  experts,          // part of the peak in products of experts
  dispatch,         // part of the link's bandwidth in all-to-alls of tokens
  slowed,           // of the time of collectives, what computing beside them loses
  gathers_2021,     // part of a card that ZeRO 3's gathers reached in 2021
  update,           // bytes that an optimizer moves for each parameter that it updates
  start_deepspeed,  // ms for each other tensor rank before a sum of activations
  // By program: the time of products, and the bytes of all else, beside Megatron's.
  time_megatron_2021,
  time_deepspeed,
  time_fsdp,
  time_fsdp_2023,
  time_fsdp_compiled,
  bytes_deepspeed,
  bytes_fsdp,
  bytes_fsdp_2023,
  bytes_fsdp_compiled,
};
inline constexpr size_t kKnobs = static_cast<size_t>(Knob::bytes_fsdp_compiled) + 1;

struct KnobInfo {
  std::string_view name;
  double value;     // fitted to published runs
  double expected;  // before any fit
  double spread;    // how far a fit may be expected to take it: the deviation of its logarithm
};
const KnobInfo& info(Knob knob);

class Efficiencies {
 public:
  Efficiencies();
  double operator[](Knob knob) const { return values_[static_cast<size_t>(knob)]; }
  double& operator[](Knob knob) { return values_[static_cast<size_t>(knob)]; }

  double products(const Processor& processor, bool eight) const;
  double attention(const Processor& processor, Software software) const;
  double time_of(Software software) const;
  double bytes_of(Software software) const;

 private:
  std::array<double, kKnobs> values_;
};

std::string to_json(const Efficiencies& efficiencies);
Efficiencies parse_efficiencies(const std::string& text);  // throws Error(invalid_argument)

}  // namespace tutti::training::planner
