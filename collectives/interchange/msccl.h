// MSCCL's XML, as it is written: gpus, their threadblocks, and the steps of each.
//
// Microsoft's MSCCL (Cowan et al., "MSCCLang", ASPLOS 2023) and RCCL keep algorithms in such files.
// Here they are read and checked for form; linearize.h makes programs of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/program/program.h"

namespace tutti {

// Chunks first to first + count - 1 of 'i' (input), 'o' (output) or 's' (scratch).
struct MscclRange {
  char buffer = 'i';
  int32_t first = 0;
  int32_t count = 0;
};

struct MscclStep {
  // In MSCCL's letters: receive, reduce, copy, send, in this order.
  enum class Type : uint8_t { s, r, rcs, rrc, rrs, rrcs, cpy, re, nop };
  Type type = Type::nop;
  MscclRange src;
  MscclRange dst;
  // The step of the same gpu that must be done first: position of the threadblock, and of the step
  // in it; -1: none.
  int32_t after_threadblock = -1;
  int32_t after_step = -1;
  int32_t line = 0;  // of the file, from 1
};
std::string_view name(MscclStep::Type type);
constexpr bool receives(MscclStep::Type type) {
  using enum MscclStep::Type;
  return type == r || type == rcs || type == rrc || type == rrs || type == rrcs;
}
constexpr bool sends(MscclStep::Type type) {
  using enum MscclStep::Type;
  return type == s || type == rcs || type == rrs || type == rrcs;
}

// Its steps run in order. Messages between two gpus have one queue per channel.
struct MscclThreadblock {
  int32_t id = 0;
  int32_t send_peer = -1;
  int32_t recv_peer = -1;
  int32_t channel = 0;
  int32_t line = 0;
  std::vector<MscclStep> steps;
};

struct MscclGpu {
  int32_t scratch_chunks = 0;
  int32_t line = 0;
  std::vector<MscclThreadblock> threadblocks;
};

struct MscclAlgorithm {
  std::string file;  // for messages
  std::string name;
  Collective collective = Collective::all_reduce;
  bool in_place = false;  // input and output are the same memory
  int32_t root = 0;       // where has_root()
  int32_t input_chunks = 0;
  int32_t output_chunks = 0;
  std::vector<MscclGpu> gpus;  // by id
  // Elements of other programs, which were skipped: "<copy>" and the line of the first one.
  std::map<std::string, int32_t> foreign;
};

// Throws Error(invalid_argument) that names file, line, gpu, threadblock and step: not XML, cut
// off, unknown or absurd values, elements of the format in the wrong place, chunks out of bounds,
// messages that have no other end.
MscclAlgorithm parse_msccl(std::string_view xml, const std::string& file);

// Where something is in a file; -1: not so exact.
struct MscclPlace {
  int32_t line = -1;
  int32_t gpu = -1;
  int32_t threadblock = -1;  // its id
  int32_t step = -1;
};
[[noreturn]] void refuse_msccl(const std::string& file, const MscclPlace& place,
                               std::string_view problem, std::string_view remedy = {});

}  // namespace tutti
