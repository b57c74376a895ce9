// Efficiencies are the fractions of peak rates that training programs reach. The defaults were
// fitted to published runs (README.md); `tutti plan --fit` fits them to a user's own runs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collectives/cost/prediction_errors.h"
#include "training/planner/processor.h"

namespace tutti::training::planner {

// A training program, which determines the operators that are fused and the communication that is
// overlapped.
enum class Software : uint8_t {
  megatron,       // Megatron Core: flash attention, gradient sums overlap with backward
  megatron_2021,  // unfused attention, gradient sums after backward
  deepspeed,      // as megatron_2021, with DeepSpeed's engine
  fsdp,           // PyTorch FSDP, eager
  fsdp_2023,      // the same with the attention kernels of 2023
  fsdp_compiled,
};
inline constexpr size_t kSoftwares = 6;
std::string_view name(Software software);
// Returns true for programs with unfused attention whose gradient sums follow backward.
bool is_of_2021(Software software);
bool is_fsdp(Software software);
// throws Error(invalid_argument) that lists the names
Software software_named(std::string_view name);

enum class Knob : uint8_t {
  products_volta,  // fraction of peak in large matrix products, 16 bits
  products_ampere,
  products_hopper,
  products_blackwell,
  eight_hopper,  // the same in 8 bits
  eight_blackwell,
  throttled,         // factor of the value above for a limited power budget
  attention_parts,   // fraction of peak in unfused attention's products
  attention_ampere,  // fraction of peak in flash attention
  attention_hopper,
  attention_blackwell,
  attention_2023,   // factor of attention_hopper for its first kernels
  memory,           // fraction of memory bandwidth
  written,          // fraction of a product's output whose write is not overlapped
  experts,          // fraction of peak in experts' products
  dispatch,         // fraction of link bandwidth in all-to-alls of tokens
  slowed,           // slowdown of computation while a collective runs, per time of the collective
  gathers_2021,     // fraction of a network card's bandwidth in ZeRO-3 gathers of 2021
  update,           // bytes of memory traffic of the optimizer per parameter
  start_deepspeed,  // ms per activation sum and additional tensor-parallel rank
  // Factors relative to Megatron: time of products, then bytes of all other operators.
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
