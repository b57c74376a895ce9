// MSCCL's XML as written: gpus, their threadblocks, and the steps of each.
//
// Microsoft's MSCCL (Cowan et al., "MSCCLang", ASPLOS 2023) and RCCL store algorithms in such
// files. They are parsed and checked for form here; linearize.h converts them to programs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/program/program.h"

namespace tutti {

// Chunks first .. first + count - 1 of 'i' (input), 'o' (output) or 's' (scratch).
struct MscclRange {
  char buffer = 'i';
  int32_t first = 0;
  int32_t count = 0;
};

struct MscclStep {
  // MSCCL's abbreviations: r = receive (first letter), r or re = reduce, c or cpy = copy, s = send.
  enum class Type : uint8_t { s, r, rcs, rrc, rrs, rrcs, cpy, re, nop };
  Type type = Type::nop;
  MscclRange src;
  MscclRange dst;
  // Step of the same gpu that must precede this one: the index of that step's threadblock, and the
  // step's index in the threadblock; -1: none.
  int32_t after_threadblock = -1;
  int32_t after_step = -1;
  int32_t line = 0;  // line in the file, from 1
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

// A list of steps that run in order. Messages between two gpus have one queue per channel.
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
  std::string file;  // file name, for error texts
  std::string name;
  Collective collective = Collective::all_reduce;
  bool in_place = false;  // true: input and output are the same memory
  int32_t root = 0;       // used if has_root()
  int32_t input_chunks = 0;
  int32_t output_chunks = 0;
  std::vector<MscclGpu> gpus;  // by id
  // Unknown XML elements that were skipped, such as "<copy>", with the line of the first
  // occurrence.
  std::map<std::string, int32_t> foreign;
};

// Parses a file. Throws Error(invalid_argument) that names file, line, gpu, threadblock and step if
// the text is not XML or is truncated, or has unknown or absurd values, misplaced elements, chunks
// out of bounds, or messages without a counterpart.
MscclAlgorithm parse_msccl(std::string_view xml, const std::string& file);

// A location in a file; -1: unspecified.
struct MscclPlace {
  int32_t line = -1;
  int32_t gpu = -1;
  int32_t threadblock = -1;  // id of the threadblock
  int32_t step = -1;
};
[[noreturn]] void refuse_msccl(const std::string& file, const MscclPlace& place,
                               std::string_view problem, std::string_view remedy = {});

}  // namespace tutti
