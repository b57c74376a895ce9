// Efficiencies are the fractions of peak rates that training software reaches, and other factors of
// its speed. The defaults were fitted to published runs (README.md); `tutti plan --fit` fits them
// to a user's own runs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collectives/cost/prediction_errors.h"
#include "training/planner/processor.h"

namespace tutti::training::planner {

// Training software. It determines the operators that are fused and the communication that is
// overlapped.
enum class Software : uint8_t {
  megatron,       // Megatron Core: flash attention, gradient sums overlap with backward
  megatron_2021,  // unfused attention, gradient sums after backward
  deepspeed,      // DeepSpeed: unfused attention, gradient sums after backward
  fsdp,           // PyTorch FSDP, eager
  fsdp_2023,      // PyTorch FSDP, eager, with the attention kernels of 2023
  fsdp_compiled,
};
inline constexpr size_t kSoftwares = 6;
std::string_view name(Software software);
// Returns true for megatron_2021 and deepspeed, whose attention is unfused and whose gradient sums
// follow backward.
bool is_of_2021(Software software);
bool is_fsdp(Software software);
// Returns the software with this name. If there is none, throws Error(invalid_argument), which
// lists the names.
Software software_named(std::string_view name);

enum class Knob : uint8_t {
  products_volta,  // fraction of peak in large 16-bit matrix products, by generation
  products_ampere,
  products_hopper,
  products_blackwell,
  eight_hopper,  // fraction of peak in large 8-bit matrix products, by generation
  eight_blackwell,
  throttled,         // factor of the rates of products and attention under a power limit
  attention_parts,   // fraction of peak in unfused attention's products
  attention_ampere,  // fraction of peak in flash attention
  attention_hopper,
  attention_blackwell,
  attention_2023,   // factor of attention_hopper for the kernels of 2023
  memory,           // fraction of memory bandwidth
  written,          // fraction of a product's output whose write is not overlapped
  experts,          // fraction of peak in experts' products
  dispatch,         // fraction of link bandwidth in all-to-alls of tokens
  slowed,           // time that computation loses per time of a concurrent collective
  gathers_2021,     // fraction of link bandwidth in ZeRO-3 gathers, if is_of_2021()
  update,           // bytes of memory traffic of the optimizer per parameter
  start_deepspeed,  // ms to start an activation sum, per tensor-parallel rank beyond the first
  // Factors relative to Megatron. time_...: time of products; bytes_...: bytes of all other
  // operators.
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
  double value;     // value fitted to published runs
  double expected;  // centre of the prior of a fit
  double spread;    // standard deviation of the prior's logarithm
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
