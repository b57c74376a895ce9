// What processors for training can do at most, as their makers publish it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training::planner {

// Efficiencies differ by generation, not by product.
enum class Generation : uint8_t { volta, ampere, hopper, blackwell };
inline constexpr size_t kGenerations = 4;

struct Processor {
  std::string name;
  Generation generation = Generation::ampere;
  double half_TFLOPs = 0;   // dense, of 16 bits
  double eight_TFLOPs = 0;  // of 8 bits; as half where it has none
  double memory_GBps = 0;
  double memory_GiB = 0;
  int multiprocessors = 1;
  bool is_throttled = false;  // by a limit of power below the usual one
  // Of a host that is usual for it: GB/s of one direction, for each processor.
  int usual_host = 8;
  double link_GBps = 0;
  double card_GBps = 0;
};

std::vector<std::string> processor_names();
// "A100-SXM-80GB", "h100": the one whose name begins so, or that begins this name. Nothing where
// there is none.
std::optional<Processor> processor_named(std::string_view name);

}  // namespace tutti::training::planner
