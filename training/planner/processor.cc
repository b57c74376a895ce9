#include "training/planner/processor.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace tutti::training::planner {

namespace {

// Returns the processors, from data sheets of NVIDIA's V100, A100, H100, H200, B200, B300, GB200
// and GB300, and AMD's MI300X (dense figures). For lack of measured runs the MI300X has Hopper's
// efficiencies. The H100 with HBM2e and 500 W is that of torchtitan's published runs.
const std::vector<Processor>& published() {
  using enum Generation;
  static const std::vector<Processor> processors = {
      {"V100-SXM-32GB", volta, 125, 125, 900, 32, 80, false, 8, 150, 12.5},
      {"V100-SXM-16GB", volta, 125, 125, 900, 16, 80, false, 8, 150, 12.5},
      {"A100-SXM-80GB", ampere, 312, 312, 2039, 80, 108, false, 8, 300, 25},
      {"A100-SXM-40GB", ampere, 312, 312, 1555, 40, 108, false, 8, 300, 25},
      {"H100-SXM-80GB", hopper, 989, 1979, 3350, 80, 132, false, 8, 450, 50},
      {"H100-96GB-HBM2e-500W", hopper, 989, 1979, 2400, 96, 132, true, 8, 450, 50},
      {"H200", hopper, 989, 1979, 4800, 141, 132, false, 8, 450, 50},
      {"B200", blackwell, 2250, 4500, 8000, 180, 148, false, 8, 900, 50},
      {"B300", blackwell, 2250, 4500, 8000, 268, 148, false, 8, 900, 100},
      {"GB200", blackwell, 2500, 5000, 8000, 184, 148, false, 72, 900, 50},
      {"GB300", blackwell, 2500, 5000, 8000, 277, 148, false, 72, 900, 100},
      {"MI300X", hopper, 1307, 2615, 5300, 192, 304, false, 8, 448, 50}};
  return processors;
}

bool begins(std::string_view text, std::string_view with) {
  return text.size() >= with.size() &&
         std::ranges::equal(
             text.substr(0, with.size()), with, {}, [](unsigned char c) { return std::tolower(c); },
             [](unsigned char c) { return std::tolower(c); });
}

}  // namespace

std::vector<std::string> processor_names() {
  std::vector<std::string> names;
  for (const Processor& processor : published()) names.push_back(processor.name);
  return names;
}

std::optional<Processor> processor_named(std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (const Processor& processor : published()) {
    if (begins(processor.name, name) || begins(name, processor.name)) return processor;
  }
  return std::nullopt;
}

}  // namespace tutti::training::planner
