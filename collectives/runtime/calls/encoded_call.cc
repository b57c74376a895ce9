#include "collectives/runtime/calls/encoded_call.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/block_format.h"
#include "base/error.h"
#include "base/reduce.h"
#include "base/text.h"

namespace tutti::internal {

namespace {

// Buffers begin at cache lines.
constexpr uint64_t kLine = 64;

Blocks blocks_of_elements(const Blocks& blocks, WireFormat format) {
  Blocks encoded;
  for (const uint64_t count : blocks.counts) {
    encoded.counts.push_back(elements_of(format, count));
  }
  return encoded;
}

// Returns the value of Request::tail for the call.
uint32_t tail_of(const Request& request, WireFormat format) {
  if (format == WireFormat::plain) return 0;
  if (request.uneven) {
    const Blocks& blocks =
        request.input_blocks.empty() ? request.output_blocks : request.input_blocks;
    return blocks.hash();
  }
  return static_cast<uint32_t>(request.count % values_of(element_of(format)));
}

}  // namespace

void check_wire(const Request& request, WireFormat format) {
  if (format == WireFormat::plain) return;
  if (request.dtype() != DType::f32) {
    throw Error(ErrorCode::invalid_argument,
                cat(name(request.collective), " of ", name(request.dtype()),
                    ": wire formats apply to f32 only"),
                {.remedy = "set CallOptions::wire to plain"});
  }
  if (request.op.op == ReduceOp::user) {
    throw Error(ErrorCode::unsupported,
                "a user-defined operator cannot combine elements in a wire format",
                {.remedy = "set CallOptions::wire to plain"});
  }
}

std::vector<EncodedCall::Run> EncodedCall::runs_of(uint64_t count, const Blocks& blocks,
                                                   int even_blocks, WireFormat format) {
  std::vector<Run> runs;
  uint64_t element = 0;
  const auto add = [&](uint64_t first, uint64_t length) {
    runs.push_back({first, length, element});
    element += tutti::elements_of(format, length);
  };
  if (!blocks.empty()) {
    for (size_t r = 0; r < blocks.counts.size(); ++r)
      add(blocks.displacements[r], blocks.counts[r]);
  } else {
    const uint64_t each = count / static_cast<uint64_t>(even_blocks);
    for (int r = 0; r < even_blocks; ++r) add(static_cast<uint64_t>(r) * each, each);
  }
  return runs;
}

uint64_t EncodedCall::elements_of(const std::vector<Run>& runs, WireFormat format) {
  return runs.empty() ? 0 : runs.back().element + tutti::elements_of(format, runs.back().count);
}

EncodedCall::EncodedCall(const Request& request, WireFormat format, int rank, int size)
    : dtype_(request.dtype()),
      element_(format == WireFormat::plain ? dtype_ : element_of(format)),
      input_(request.input.data),
      output_(request.output.data),
      has_result_(request.output.count > 0 &&
                  !(request.collective == Collective::exscan && rank == 0)),
      combines_(request.combines),
      encoded_(request) {
  check_wire(request, format);
  if (combines_) combined_ = std::exchange(encoded_.op, {});
  encoded_.combines = false;
  encoded_.encoded = true;
  encoded_.tail = tail_of(request, format);
  const Collective c = request.collective;
  sent_ = runs_of(request.input.count, request.input_blocks,
                  has_input_blocks(c) && request.input.count > 0 ? size : 1, format);
  received_ = runs_of(request.output.count, request.output_blocks,
                      has_output_blocks(c) && request.output.count > 0 ? size : 1, format);
  encoded_.input_blocks = blocks_of_elements(request.input_blocks, format);
  encoded_.output_blocks = blocks_of_elements(request.output_blocks, format);
  encoded_.input.count = elements_of(sent_, format);
  encoded_.output.count = elements_of(received_, format);
  encoded_.input.dtype = encoded_.output.dtype = element_;
  // An all_reduce gives the same result in place, so its input and output share one buffer.
  const bool in_place = c == Collective::all_reduce;
  const uint64_t bytes = size_of(element_);
  const auto whole_lines = [bytes](uint64_t elements) {
    return (elements * bytes + kLine - 1) / kLine * kLine;
  };
  const uint64_t sent = in_place ? 0 : whole_lines(encoded_.input.count);
  const uint64_t received = whole_lines(encoded_.output.count);
  const uint64_t decoded = combines_ && travels() ? request.output.count * sizeof(float) : 0;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(sent + received + decoded);
  decoded_ = reinterpret_cast<float*>(memory_.get() + sent + received);
  encoded_.input.data = memory_.get();
  encoded_.output.data = memory_.get() + sent;
}

uint64_t EncodedCall::values_received() const {
  uint64_t values = 0;
  for (const Run& run : received_) values += run.count;
  return values;
}

void EncodedCall::encode() const {
  if (!travels()) return;
  auto* const elements = static_cast<std::byte*>(const_cast<void*>(encoded_.input.data));
  const auto* const input = static_cast<const float*>(input_);
  const uint64_t values = values_of(element_);
  for (const Run& run : sent_) {
    std::byte* const to = elements + run.element * size_of(element_);
    const uint64_t whole = run.count / values;
    narrow(to, input + run.first, whole, element_);
    const uint64_t rest = run.count % values;
    if (rest == 0) continue;
    std::array<float, kMostValues> last;
    last.fill(padding(block_format_of(element_)));
    std::memcpy(last.data(), input + run.first + whole * values, rest * sizeof(float));
    narrow(to + whole * size_of(element_), last.data(), 1, element_);
  }
}

void EncodedCall::decode() const {
  if (!has_result_) return;
  if (!combines_) return decode_into(static_cast<float*>(output_));
  if (!travels()) return combine(encoded_.output.data);
  decode_into(decoded_);
  combine(decoded_);
}

void EncodedCall::combine(const void* received) const {
  const uint64_t count = values_received();
  if (combined_.op == ReduceOp::user) {
    combined_.function->combine(output_, output_, received, count, dtype_);
  } else {
    reduce_kernel(dtype_, combined_.op)(output_, output_, received, count, {});
  }
}

void EncodedCall::decode_into(float* output) const {
  const auto* const elements = static_cast<const std::byte*>(encoded_.output.data);
  const uint64_t values = values_of(element_);
  for (const Run& run : received_) {
    const std::byte* const from = elements + run.element * size_of(element_);
    const uint64_t whole = run.count / values;
    widen(output + run.first, from, whole, element_);
    const uint64_t rest = run.count % values;
    if (rest == 0) continue;
    std::array<float, kMostValues> last;
    widen(last.data(), from + whole * size_of(element_), 1, element_);
    std::memcpy(output + run.first + whole * values, last.data(), rest * sizeof(float));
  }
}

}  // namespace tutti::internal
