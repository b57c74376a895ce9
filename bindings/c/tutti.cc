// The C interface on top of Communicator: handles, exceptions turned into codes, options of any
// age.
#include "bindings/c/tutti.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "transport/bootstrap/job.h"

struct tutti_comm {
  tutti::Communicator communicator;
  std::mutex mutex;
  std::map<void*, tutti::Memory<std::byte>> allocations;  // guarded by mutex
};

struct tutti_work {
  tutti::Work work;
};

namespace tutti {
namespace {

template <typename Enum>
constexpr bool same(int value, Enum other) {
  return value == static_cast<int>(other);
}

static_assert(same(TUTTI_OK, ErrorCode::ok) && same(TUTTI_MISMATCH, ErrorCode::mismatch) &&
              same(TUTTI_ABORTED, ErrorCode::aborted) && same(TUTTI_INTERNAL, ErrorCode::internal));
static_assert(same(TUTTI_I8, DType::i8) && same(TUTTI_U64, DType::u64) &&
              same(TUTTI_F16, DType::f16) && same(TUTTI_BF16, DType::bf16) &&
              same(TUTTI_F32, DType::f32) && same(TUTTI_F64, DType::f64) &&
              same(TUTTI_F8E4M3, DType::f8e4m3) && same(TUTTI_F8E5M2, DType::f8e5m2));
static_assert(same(TUTTI_SUM, ReduceOp::sum) && same(TUTTI_PROD, ReduceOp::prod) &&
              same(TUTTI_MIN, ReduceOp::min) && same(TUTTI_MAX, ReduceOp::max) &&
              same(TUTTI_AVG, ReduceOp::avg) && same(TUTTI_BAND, ReduceOp::band) &&
              same(TUTTI_BOR, ReduceOp::bor) && same(TUTTI_BXOR, ReduceOp::bxor));
static_assert(same(TUTTI_HOST, MemorySpace::host) && same(TUTTI_DEVICE, MemorySpace::device));
static_assert(sizeof(tutti_buffer_t) == 24, "part of the ABI");

std::string& last_error() {
  thread_local std::string text;
  return text;
}

tutti_status_t failed(ErrorCode code, const char* text) {
  last_error() = text;
  return static_cast<tutti_status_t>(code);
}

// No exception crosses the border.
template <typename Action>
tutti_status_t guarded(Action action) noexcept {
  try {
    action();
    return TUTTI_OK;
  } catch (const Error& error) {
    return failed(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(ErrorCode::system, "out of memory");
  } catch (const std::exception& error) {
    return failed(ErrorCode::internal, error.what());
  }
}

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

template <typename T>
T& checked(T* pointer, const char* what) {
  if (pointer == nullptr) invalid(cat(what, " is NULL"));
  return *pointer;
}

Communicator& of(tutti_comm_t* comm) { return checked(comm, "the communicator").communicator; }

// A caller compiled against an older header passes a shorter struct, whose missing members are
// zero; a newer caller may pass a longer one, if it asks for nothing that this library has not
// heard of.
template <typename Options>
Options known_part(const Options* given, const char* what) {
  Options options{};
  if (given == nullptr) return options;
  const size_t size = given->size;
  if (size < sizeof(size_t)) invalid(cat(what, "->size is ", size, ", not the size of the struct"));
  const char* bytes = reinterpret_cast<const char*>(given);
  std::memcpy(&options, bytes, std::min(size, sizeof(Options)));
  for (size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) {
      throw Error(ErrorCode::unsupported,
                  cat(what, " has a member set that version ", tutti_version(), " does not know"),
                  {.remedy = "install the version that the program was compiled against"});
    }
  }
  return options;
}

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  constexpr double kLongest = 9e9;  // about 285 years; more does not fit
  if (!(seconds >= 0)) invalid(cat(seconds, " is no number of seconds"));
  return std::chrono::nanoseconds(static_cast<int64_t>(std::min(seconds, kLongest) * 1e9));
}

CallOptions options_of(const tutti_call_options_t* given) {
  const tutti_call_options_t known = known_part(given, "tutti_call_options_t");
  CallOptions options;
  if (known.algorithm != nullptr) options.algorithm = known.algorithm;
  options.stream.handle = known.stream;
  if (known.timeout != 0) options.timeout = nanoseconds_of(known.timeout);
  return options;
}

Buffer buffer_from(const tutti_buffer_t& given) {
  if (given.dtype < 0 || given.dtype >= static_cast<int32_t>(kAllDTypes.size())) {
    invalid(cat("dtype ", given.dtype, " is no tutti_dtype_t"));
  }
  if (given.space != TUTTI_HOST && given.space != TUTTI_DEVICE) {
    invalid(cat("memory space ", given.space, " is no tutti_space_t"));
  }
  return {given.data, given.count, static_cast<DType>(given.dtype),
          static_cast<MemorySpace>(given.space)};
}

ConstBuffer const_buffer_from(const tutti_buffer_t& given) { return as_const(buffer_from(given)); }

ReduceOp op_from(tutti_op_t op) {
  if (op < 0 || op >= static_cast<int32_t>(kAllReduceOps.size())) {
    invalid(cat("op ", op, " is no tutti_op_t"));
  }
  return static_cast<ReduceOp>(op);
}

Job job_from(const tutti_init_options_t& options) {
  Job job = job_from_environment();
  if (options.ranks == 0) return job;
  if (options.ranks < 0 || options.rank < 0 || options.rank >= options.ranks) {
    invalid(cat("rank ", options.rank, " of ", options.ranks, " is impossible"));
  }
  if (options.master_port < 0 || options.master_port > 65535) {
    invalid(cat("master_port ", options.master_port, " is no port"));
  }
  job.rank = options.rank;
  job.size = options.ranks;
  job.master_address = options.master_address == nullptr ? "" : options.master_address;
  job.master_port = static_cast<uint16_t>(options.master_port);
  job.rendezvous_file = options.rendezvous_file == nullptr ? "" : options.rendezvous_file;
  job.listen_fd = -1;
  job.launcher_fd = -1;
  return job;
}

// Begins a call and hands out its handle.
template <typename Begin>
tutti_status_t begin(tutti_work_t** work, Begin call) {
  return guarded([&] {
    checked(work, "where to put the work") = nullptr;
    auto handle = std::make_unique<tutti_work>();
    handle->work = call();
    *work = handle.release();
  });
}

// Misspelt variables are worth a line, once per process.
void log_settings_warnings() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const std::string& warning : settings().warnings()) log(LogLevel::warning, warning);
  });
}

tutti_comm_t* handle_of(Communicator communicator) {
  auto handle = std::make_unique<tutti_comm>();
  handle->communicator = std::move(communicator);
  return handle.release();
}

}  // namespace
}  // namespace tutti

// NOLINTBEGIN(readability-identifier-naming): C names
using tutti::begin;
using tutti::buffer_from;
using tutti::checked;
using tutti::const_buffer_from;
using tutti::guarded;
using tutti::of;
using tutti::op_from;
using tutti::options_of;

#define TUTTI_TEXT_OF(x) #x
#define TUTTI_TEXT(x) TUTTI_TEXT_OF(x)

const char* tutti_version(void) {
  return TUTTI_TEXT(TUTTI_VERSION_MAJOR) "." TUTTI_TEXT(TUTTI_VERSION_MINOR) "." TUTTI_TEXT(
      TUTTI_VERSION_PATCH);
}

const char* tutti_error_text(void) { return tutti::last_error().c_str(); }

const char* tutti_error_name(tutti_status_t status) {
  return tutti::name(static_cast<tutti::ErrorCode>(status)).data();  // a literal
}

// ---- communicators ----

tutti_status_t tutti_init(tutti_comm_t** comm, const tutti_init_options_t* options) {
  return guarded([&] {
    checked(comm, "where to put the communicator") = nullptr;
    const auto known = tutti::known_part(options, "tutti_init_options_t");
    tutti::log_settings_warnings();
    *comm = tutti::handle_of(tutti::Communicator::init(tutti::job_from(known)));
  });
}

tutti_status_t tutti_split(tutti_comm_t* comm, int32_t color, int32_t key, tutti_comm_t** result) {
  return guarded([&] {
    checked(result, "where to put the communicator") = nullptr;
    tutti::Communicator part = of(comm).split(color, key);
    if (part.valid()) *result = tutti::handle_of(std::move(part));
  });
}

void tutti_destroy(tutti_comm_t* comm) {
  const std::unique_ptr<tutti_comm> owned(comm);
  if (owned == nullptr) return;
  // Calls first: until the communicator is gone one of them may still be writing to the memory.
  owned->communicator = {};
  owned->allocations.clear();
}

tutti_status_t tutti_abort(tutti_comm_t* comm, const char* reason) {
  return guarded([&] { of(comm).abort(reason == nullptr ? "tutti_abort()" : reason); });
}

int32_t tutti_rank(const tutti_comm_t* comm) {
  return comm == nullptr ? -1 : comm->communicator.rank();
}

int32_t tutti_size(const tutti_comm_t* comm) {
  return comm == nullptr ? -1 : comm->communicator.size();
}

tutti_status_t tutti_alloc(tutti_comm_t* comm, size_t bytes, void** data) {
  return guarded([&] {
    checked(data, "where to put the memory") = nullptr;
    // At least a byte, so that each allocation has an address of its own.
    tutti::Memory<std::byte> memory = of(comm).allocate<std::byte>(std::max<size_t>(bytes, 1));
    void* const address = memory.get();
    const std::lock_guard lock(comm->mutex);
    comm->allocations[address] = std::move(memory);
    *data = address;
  });
}

tutti_status_t tutti_free(tutti_comm_t* comm, void* data) {
  return guarded([&] {
    of(comm);
    if (data == nullptr) return;
    const std::lock_guard lock(comm->mutex);
    if (comm->allocations.erase(data) == 0) {
      tutti::invalid("the memory is not from tutti_alloc() of this communicator");
    }
  });
}

// ---- blocking calls ----

tutti_status_t tutti_all_reduce(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                tutti_op_t op, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).all_reduce(const_buffer_from(input), buffer_from(output), op_from(op),
                        options_of(options));
  });
}

tutti_status_t tutti_all_gather(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).all_gather(const_buffer_from(input), buffer_from(output), options_of(options));
  });
}

tutti_status_t tutti_reduce_scatter(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                    tutti_op_t op, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).reduce_scatter(const_buffer_from(input), buffer_from(output), op_from(op),
                            options_of(options));
  });
}

tutti_status_t tutti_broadcast(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                               int32_t root, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).broadcast(const_buffer_from(input), buffer_from(output), root, options_of(options));
  });
}

tutti_status_t tutti_reduce(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                            tutti_op_t op, int32_t root, const tutti_call_options_t* options) {
  return guarded([&] {
    of(comm).reduce(const_buffer_from(input), buffer_from(output), op_from(op), root,
                    options_of(options));
  });
}

tutti_status_t tutti_barrier(tutti_comm_t* comm, const tutti_call_options_t* options) {
  return guarded([&] { of(comm).barrier(options_of(options)); });
}

tutti_status_t tutti_send(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t to,
                          const tutti_call_options_t* options) {
  return guarded([&] { of(comm).send(const_buffer_from(buffer), to, options_of(options)); });
}

tutti_status_t tutti_recv(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t from,
                          const tutti_call_options_t* options) {
  return guarded([&] { of(comm).recv(buffer_from(buffer), from, options_of(options)); });
}

// ---- asynchronous calls ----

tutti_status_t tutti_all_reduce_async(tutti_comm_t* comm, tutti_buffer_t input,
                                      tutti_buffer_t output, tutti_op_t op,
                                      const tutti_call_options_t* options, tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).all_reduce_async(const_buffer_from(input), buffer_from(output), op_from(op),
                                     options_of(options));
  });
}

tutti_status_t tutti_all_gather_async(tutti_comm_t* comm, tutti_buffer_t input,
                                      tutti_buffer_t output, const tutti_call_options_t* options,
                                      tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).all_gather_async(const_buffer_from(input), buffer_from(output),
                                     options_of(options));
  });
}

tutti_status_t tutti_reduce_scatter_async(tutti_comm_t* comm, tutti_buffer_t input,
                                          tutti_buffer_t output, tutti_op_t op,
                                          const tutti_call_options_t* options,
                                          tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).reduce_scatter_async(const_buffer_from(input), buffer_from(output), op_from(op),
                                         options_of(options));
  });
}

tutti_status_t tutti_broadcast_async(tutti_comm_t* comm, tutti_buffer_t input,
                                     tutti_buffer_t output, int32_t root,
                                     const tutti_call_options_t* options, tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).broadcast_async(const_buffer_from(input), buffer_from(output), root,
                                    options_of(options));
  });
}

tutti_status_t tutti_reduce_async(tutti_comm_t* comm, tutti_buffer_t input, tutti_buffer_t output,
                                  tutti_op_t op, int32_t root, const tutti_call_options_t* options,
                                  tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).reduce_async(const_buffer_from(input), buffer_from(output), op_from(op), root,
                                 options_of(options));
  });
}

tutti_status_t tutti_barrier_async(tutti_comm_t* comm, const tutti_call_options_t* options,
                                   tutti_work_t** work) {
  return begin(work, [&] { return of(comm).barrier_async(options_of(options)); });
}

tutti_status_t tutti_send_async(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t to,
                                const tutti_call_options_t* options, tutti_work_t** work) {
  return begin(work, [&] {
    return of(comm).send_async(const_buffer_from(buffer), to, options_of(options));
  });
}

tutti_status_t tutti_recv_async(tutti_comm_t* comm, tutti_buffer_t buffer, int32_t from,
                                const tutti_call_options_t* options, tutti_work_t** work) {
  return begin(work,
               [&] { return of(comm).recv_async(buffer_from(buffer), from, options_of(options)); });
}

// ---- work ----

tutti_status_t tutti_wait(tutti_work_t* work) {
  return guarded([&] { checked(work, "the work").work.wait(); });
}

tutti_status_t tutti_test(tutti_work_t* work, int* done) {
  return guarded([&] {
    checked(done, "where to put the answer") = 0;
    *done = checked(work, "the work").work.test() ? 1 : 0;
  });
}

tutti_status_t tutti_wait_for(tutti_work_t* work, double seconds, int* done) {
  return guarded([&] {
    checked(done, "where to put the answer") = 0;
    const auto time = tutti::nanoseconds_of(seconds);
    *done = checked(work, "the work").work.wait_for(time) ? 1 : 0;
  });
}

void tutti_work_free(tutti_work_t* work) { const std::unique_ptr<tutti_work> owned(work); }
// NOLINTEND(readability-identifier-naming)
