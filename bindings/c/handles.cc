#include "bindings/c/handles.h"

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/dtype.h"
#include "base/reduce_op.h"
#include "bindings/c/communicator_of.h"

namespace tutti::c {

namespace {

template <typename Enum>
constexpr bool same(int value, Enum other) {
  return value == static_cast<int>(other);
}

static_assert(same(TUTTI_OK, ErrorCode::ok) && same(TUTTI_MISMATCH, ErrorCode::mismatch) &&
              same(TUTTI_ABORTED, ErrorCode::aborted) &&
              same(TUTTI_INTERNAL, ErrorCode::internal) &&
              same(TUTTI_CORRUPTED, ErrorCode::corrupted));
static_assert(same(TUTTI_I8, DType::i8) && same(TUTTI_U64, DType::u64) &&
              same(TUTTI_F16, DType::f16) && same(TUTTI_BF16, DType::bf16) &&
              same(TUTTI_F32, DType::f32) && same(TUTTI_F64, DType::f64) &&
              same(TUTTI_F8E4M3, DType::f8e4m3) && same(TUTTI_F8E5M2, DType::f8e5m2) &&
              same(TUTTI_F32_I32, DType::f32_i32) && same(TUTTI_I64_I64, DType::i64_i64));
static_assert(same(TUTTI_SUM, ReduceOp::sum) && same(TUTTI_PROD, ReduceOp::prod) &&
              same(TUTTI_MIN, ReduceOp::min) && same(TUTTI_MAX, ReduceOp::max) &&
              same(TUTTI_AVG, ReduceOp::avg) && same(TUTTI_BAND, ReduceOp::band) &&
              same(TUTTI_BOR, ReduceOp::bor) && same(TUTTI_BXOR, ReduceOp::bxor) &&
              same(TUTTI_MINLOC, ReduceOp::minloc) && same(TUTTI_MAXLOC, ReduceOp::maxloc) &&
              same(TUTTI_PREMUL_SUM, ReduceOp::premul_sum) && same(TUTTI_USER, ReduceOp::user));
static_assert(same(TUTTI_WIRE_PLAIN, WireFormat::plain) &&
              same(TUTTI_WIRE_BF16, WireFormat::bf16) && same(TUTTI_WIRE_F16, WireFormat::f16) &&
              same(TUTTI_WIRE_F8E4M3, WireFormat::f8e4m3) &&
              same(TUTTI_WIRE_F8E5M2, WireFormat::f8e5m2) &&
              same(TUTTI_WIRE_MX8, WireFormat::mx8) && same(TUTTI_WIRE_MX4, WireFormat::mx4) &&
              same(TUTTI_WIRE_INT8, WireFormat::int8) && same(TUTTI_WIRE_SIGN, WireFormat::sign));
static_assert(same(TUTTI_HOST, MemorySpace::host) && same(TUTTI_DEVICE, MemorySpace::device));
static_assert(TUTTI_ANY_SOURCE == kAnySource && TUTTI_ANY_TAG == kAnyTag &&
              TUTTI_LARGEST_TAG == kLargestTag);
static_assert(sizeof(tutti_buffer_t) == 24, "part of the ABI");

}  // namespace

LastError& last_error() {
  thread_local LastError error;
  return error;
}

tutti_status_t failed(ErrorCode code, const char* text, int rank) {
  last_error() = {text, rank};
  return static_cast<tutti_status_t>(code);
}

void invalid(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

Communicator& of(tutti_comm_t* comm) { return checked(comm, "the communicator").communicator; }

tutti_comm_t* handle_of(Communicator communicator) {
  auto handle = std::make_unique<tutti_comm>();
  handle->communicator = std::move(communicator);
  return handle.release();
}

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  if (!(seconds >= 0)) invalid(cat("invalid number of seconds ", seconds));
  return duration_of(seconds);
}

OptionsOfCall::OptionsOfCall(const tutti_call_options_t* given) {
  const tutti_call_options_t known = known_part(given, "tutti_call_options_t");
  if (known.after_count > 0) checked(known.after, "the list of works in `after`");
  for (size_t i = 0; i < known.after_count; ++i) {
    works_.push_back(checked(known.after[i], "a work in `after`").work);
  }
  options_.after = works_;
  if (known.algorithm != nullptr) options_.algorithm = known.algorithm;
  options_.stream.handle = known.stream;
  if (known.timeout != 0) options_.timeout = nanoseconds_of(known.timeout);
  options_.deterministic = known.deterministic != 0;
  options_.tag = known.tag;
  options_.may_be_shorter = known.may_be_shorter != 0;
  if (known.wire < 0 || known.wire >= static_cast<int64_t>(kAllWireFormats.size())) {
    invalid(cat("wire ", known.wire, " is not a tutti_wire_t"));
  }
  options_.wire = static_cast<WireFormat>(known.wire);
  options_.queue = known.queue > INT32_MAX ? INT32_MAX : static_cast<int>(known.queue);
}

tutti_message_t& checked_message(tutti_message_t* message) {
  tutti_message_t& checked = c::checked(message, "the output pointer for the message");
  known_part(message, "tutti_message_t");
  if (checked.size < sizeof(tutti_message_t)) {
    invalid(
        cat("tutti_message_t->size is ", checked.size, ", which is not the size of the struct"));
  }
  return checked;
}

void fill_message(const MessageInfo& info, tutti_message_t& message) {
  message.source = info.source;
  message.tag = info.tag;
  message.dtype = static_cast<tutti_dtype_t>(info.dtype);
  message.count = info.count;
}

Buffer buffer_from(const tutti_buffer_t& given) {
  if (given.dtype < 0 || given.dtype >= static_cast<int32_t>(kAllDTypes.size())) {
    invalid(cat("dtype ", given.dtype, " is not a tutti_dtype_t"));
  }
  if (given.space != TUTTI_HOST && given.space != TUTTI_DEVICE) {
    invalid(cat("memory space ", given.space, " is not a tutti_space_t"));
  }
  return {given.data, given.count, static_cast<DType>(given.dtype),
          static_cast<MemorySpace>(given.space)};
}

ConstBuffer const_buffer_from(const tutti_buffer_t& given) { return as_const(buffer_from(given)); }

ReduceOp op_from(tutti_op_t op) {
  if (op < 0 || op >= static_cast<int32_t>(kAllReduceOps.size())) {
    invalid(cat("op ", op, " is not a tutti_op_t"));
  }
  if (op == TUTTI_PREMUL_SUM || op == TUTTI_USER) {
    throw Error(ErrorCode::invalid_argument, cat("op ", op, " needs a factor or a function"),
                {.remedy = "fill in a tutti_request_t, and use tutti_run() or tutti_start()"});
  }
  return static_cast<ReduceOp>(op);
}

}  // namespace tutti::c

tutti::Communicator tutti::communicator_of(tutti_comm_t* comm) { return c::of(comm); }
