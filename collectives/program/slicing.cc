#include "collectives/program/slicing.h"

#include <algorithm>

namespace tutti {

namespace {

uint64_t line_elements(uint64_t element_bytes) { return std::max<uint64_t>(1, 64 / element_bytes); }

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Returns the largest number of whole cache lines per chunk with which `chunks` chunks fit into one
// message.
uint64_t most_elements(uint64_t message_bytes, uint64_t chunks, uint64_t element_bytes) {
  const uint64_t line = line_elements(element_bytes);
  return std::max(message_bytes / (chunks * element_bytes) / line * line, uint64_t{1});
}

}  // namespace

Slicing slice_collective(Collective collective, const Program& program, uint64_t largest,
                         uint64_t element_bytes, bool private_blocks, const Limits& limits) {
  const int fan_out = std::max(1, program.fan_out);
  const auto chunks = static_cast<uint64_t>(std::max(1, program.chunks_per_message));
  const int lanes = std::clamp(limits.slots / fan_out, 1, limits.lanes);
  const uint64_t most = most_elements(limits.collective_bytes(), chunks, element_bytes);

  Slicing slicing{
      .elements = most, .lanes = lanes, .credit = std::max(1, limits.slots / (fan_out * lanes))};
  if (!private_blocks) {
    const uint64_t line = line_elements(element_bytes);
    const uint64_t least =
        std::min(limits.least_bytes / (chunks * element_bytes) / line * line + line, most);
    const auto l = static_cast<uint64_t>(lanes);
    slicing.elements = std::clamp(round_up((largest + l - 1) / l, line), least, most);
  }
  slicing.slices = static_cast<uint32_t>((largest + slicing.elements - 1) / slicing.elements);
  const bool speaks_without_data = collective == Collective::barrier || private_blocks;
  if (speaks_without_data) slicing.slices = std::max<uint32_t>(1, slicing.slices);
  if (!private_blocks) {
    slicing.lanes = static_cast<int>(std::clamp<uint32_t>(slicing.slices, 1, lanes));
  }
  return slicing;
}

Slicing slice_p2p(uint64_t count, uint64_t element_bytes, const MessageLimits& longest) {
  Slicing slicing{
      .elements = most_elements(longest.p2p_bytes, 1, element_bytes), .lanes = 1, .credit = 2};
  slicing.slices = static_cast<uint32_t>(
      std::max<uint64_t>(1, (count + slicing.elements - 1) / slicing.elements));
  return slicing;
}

}  // namespace tutti
