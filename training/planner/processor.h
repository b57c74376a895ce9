// Published peak rates of training processors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::training::planner {

// Generation of processors. Processors of one generation have the same efficiencies.
enum class Generation : uint8_t { volta, ampere, hopper, blackwell };
inline constexpr size_t kGenerations = 4;

struct Processor {
  std::string name;
  Generation generation = Generation::ampere;
  double half_TFLOPs = 0;   // dense peak in 16 bits
  double eight_TFLOPs = 0;  // dense peak in 8 bits; equals half_TFLOPs if 8 bits are not supported
  double memory_GBps = 0;
  double memory_GiB = 0;
  int multiprocessors = 1;
  bool is_throttled = false;  // true if the power limit is below the usual one
  // The usual host: number of processors, and GB/s per processor in one direction over links inside
  // the host and over network cards.
  int usual_host = 8;
  double link_GBps = 0;
  double card_GBps = 0;
};

std::vector<std::string> processor_names();
// Finds a processor by a prefix of its name ("h100") or by a text that begins with its name.
// Returns nullopt if there is none.
std::optional<Processor> processor_named(std::string_view name);

}  // namespace tutti::training::planner
