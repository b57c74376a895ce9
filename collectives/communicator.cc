#include "collectives/communicator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <system_error>

#include "base/cuda/abi.h"
#include "base/growing_pause.h"
#include "base/log.h"
#include "base/memory_range.h"
#include "base/process_limits.h"
#include "base/processors.h"
#include "base/settings.h"
#include "base/start_thread.h"
#include "base/text.h"
#include "collectives/group.h"
#include "collectives/interchange/msccl_import.h"
#include "collectives/runtime/communicator_impl.h"
#include "transport/bootstrap/discovery/job.h"

namespace tutti {

using internal::CommunicatorImpl;

// ---- Work

namespace {

// Returns the state of a call whose communicator is destroyed, or is being destroyed by another
// thread that ends its calls.
WorkState state_of(const internal::Operation& operation) {
  if (operation.done.load(std::memory_order_acquire)) return WorkState::complete;
  return operation.failed.load(std::memory_order_acquire) ? WorkState::failed
                                                          : WorkState::in_flight;
}

bool outwait_destruction(const internal::Operation& operation, const Deadline& deadline) {
  constexpr std::chrono::milliseconds kLongestPause(1);
  GrowingPause pause(kLongestPause);
  while (state_of(operation) == WorkState::in_flight) {
    if (deadline.passed()) return false;
    pause.sleep();
  }
  if (state_of(operation) == WorkState::failed) throw Error(*operation.failure);
  return true;
}

}  // namespace

std::shared_ptr<CommunicatorImpl> Work::comm() const {
  if (owner_ != nullptr) return {std::shared_ptr<void>(), owner_};
  return comm_.lock();
}

WorkState Work::poll() {
  if (!operation_) return WorkState::complete;
  const std::shared_ptr<CommunicatorImpl> comm = this->comm();
  return comm ? comm->poll(*operation_, stall_state_) : state_of(*operation_);
}

bool Work::test() {
  const WorkState state = poll();
  if (state == WorkState::failed) throw Error(*error());
  return state == WorkState::complete;
}

std::optional<Error> Work::error() const {
  if (!operation_) return std::nullopt;
  if (const std::shared_ptr<CommunicatorImpl> comm = this->comm()) {
    return comm->error_of(*operation_);
  }
  return state_of(*operation_) == WorkState::failed ? operation_->failure : std::nullopt;
}

void Work::on_end(std::function<void(const Error*)> callback) {
  if (!operation_) return callback(nullptr);
  if (const std::shared_ptr<CommunicatorImpl> comm = this->comm()) {
    return comm->on_end(*operation_, std::move(callback));
  }
  try {
    outwait_destruction(*operation_, Deadline::never());
  } catch (const Error& error) {
    return callback(&error);
  }
  callback(nullptr);
}

void Work::wait() { wait_until(Deadline::never()); }

bool Work::wait_for(std::chrono::nanoseconds timeout) {
  return wait_until(Deadline::after(timeout));
}

bool Work::wait_until(const Deadline& deadline) {
  if (!operation_) return true;
  const std::shared_ptr<CommunicatorImpl> comm = this->comm();
  return comm ? comm->wait(*operation_, deadline, stall_state_)
              : outwait_destruction(*operation_, deadline);
}

const void* internal::rank_behind(const Work& work) {
  const std::shared_ptr<CommunicatorImpl> comm = work.operation_ ? work.comm() : nullptr;
  return comm ? comm->engine() : nullptr;
}

MessageInfo Work::received() const {
  const bool receives = operation_ && operation_->point_to_point() && !operation_->compiled->sends;
  if (!receives || !operation_->done.load(std::memory_order_acquire)) {
    throw Error(ErrorCode::invalid_argument,
                "no message is available: only completed receives have one");
  }
  return operation_->received;
}

void Work::abort(const std::string& reason) {
  if (!operation_ || test()) return;
  if (const std::shared_ptr<CommunicatorImpl> comm = this->comm()) comm->abort(reason);
}

// ---- creation

namespace {

// Information that each rank sends to all others during the bootstrap (Job::note).
struct Note {
  std::string processors;  // result of own_processors()
  std::string cost_model;  // cost model of rank 0

  std::string text() const { return cat(processors, '\n', cost_model); }
  static Note of(const std::string& text) {
    const size_t end = std::min(text.find('\n'), text.size());
    return {text.substr(0, end), text.substr(std::min(end + 1, text.size()))};
  }
};

// Returns the processors of all ranks on the host of `rank`.
std::vector<std::string> processors_beside(const Control& control, int rank) {
  std::vector<std::string> processors;
  for (int r = 0; r < control.size(); ++r) {
    if (control.peer(r).host_id != control.peer(rank).host_id) continue;
    processors.push_back(Note::of(control.peer(r).note).processors);
  }
  return processors;
}

}  // namespace

namespace {

// Creates the communicator that init() returns; returns null on a spare. If there are spares, first
// creates a communicator of all ranks, and destroys it again.
std::shared_ptr<CommunicatorImpl> make_first(const std::shared_ptr<internal::Engine>& engine,
                                             bool has_spares) {
  Control& control = engine->control();
  // Other ranks may already use a communicator that this rank has not created yet. While this
  // object lives, messages for such a communicator are kept.
  const Control::Making making(control);
  // The first communicator creates the resources shared by the ranks of a host, for all
  // communicators.
  constexpr uint64_t kWorld = 1;
  std::vector<int> members(control.size());
  std::iota(members.begin(), members.end(), 0);
  auto world =
      std::make_shared<CommunicatorImpl>(engine, kWorld, std::move(members), control.rank(), 0);
  if (!has_spares) return world;
  world.reset();
  if (!engine->spares().is_active(control.rank())) return nullptr;
  constexpr uint64_t kWithoutSpares = 2;
  return std::make_shared<CommunicatorImpl>(engine, kWithoutSpares, engine->spares().active(),
                                            control.rank(), 0);
}

// Waits as a spare. Returns the communicator that the other ranks create with this spare when they
// need it. If the job ends without it, exits the process or throws (Job::unneeded_spares_exit).
Communicator wait_as_spare(std::shared_ptr<internal::Engine> engine, const Job& job) {
  try {
    auto grown = engine->spares().grow(*engine, internal::maker(engine), {},
                                       std::chrono::nanoseconds::zero());
    if (grown) return Communicator(std::move(grown));
  } catch (...) {
    engine->spares().abandon();
    throw;
  }
  engine.reset();  // leaves the job
  if (job.unneeded_spares_exit) {
    std::exit(static_cast<int>(settings().get_int("TUTTI_UNNEEDED_CODE")));
  }
  throw Error(ErrorCode::aborted, "the job ended without using this spare rank");
}

// Returns true if this rank must load its own cost model: on rank 0, whose model is sent to all
// ranks, and on a rank that needs a model earlier, to choose the fabrics that it opens.
bool needs_own_costs(const Job& job) {
  if (job.rank == 0 || job.size == 1) return job.rank == 0;
  const std::string file = cost_model_file();
  return settings().get_string("TUTTI_TRANSPORT") == "auto" && std::filesystem::exists(file);
}

}  // namespace

Communicator Communicator::init() { return init(job_from_environment()); }

std::future<Communicator> Communicator::init_async(const Job& job) {
  try {
    return std::async(std::launch::async, [job] { return init(job); });
  } catch (const std::system_error& error) {
    throw thread_shortage("joining", error);
  }
}

Communicator Communicator::init(const Job& job) {
  require_stack();
  set_log_rank(job.size > 1 ? job.rank : -1);
  AlgorithmFiles files = load_algorithm_files();
  Job noted = job;
  noted.wire_settings += files.digests;
  const CostModel own = needs_own_costs(job) ? load_cost_model() : CostModel::defaults();
  noted.note = Note{own_processors(), job.rank == 0 ? to_json(own) : ""}.text();
  auto endpoint = std::make_unique<Endpoint>(noted, fabrics_quicker_than_tcp(own));
  const Control& control = endpoint->control();
  // The model is derived from values that are the same on all ranks. Every host is assumed to have
  // the processors of rank 0's host.
  CostModel model = CostModel::defaults();
  if (job.size > 1) model = parse_cost_model(Note::of(control.peer(0).note).cost_model);
  model.cores = std::min(model.cores, usable_processors(processors_beside(control, 0)));
  const std::vector<std::string> local = processors_beside(control, control.rank());
  const internal::EngineOptions options{
      .oversubscribed = static_cast<int>(local.size()) > usable_processors(local),
      .progress_thread = settings().get_bool("TUTTI_PROGRESS_THREAD"),
      .cost_model = model,
      .algorithms = std::move(files.algorithms),
      .spares = job.spares};
  auto engine = std::make_shared<internal::Engine>(std::move(endpoint), options);
  auto first = make_first(engine, job.spares > 0);
  return first ? Communicator(std::move(first)) : wait_as_spare(std::move(engine), job);
}

namespace {

[[noreturn]] void refuse_empty() {
  throw Error(ErrorCode::invalid_argument, "the communicator is empty",
              {.cause = "this rank passed a negative colour to split(), or never called init()"});
}

[[noreturn]] void refuse_destroyed(const char* what) {
  throw Error(ErrorCode::invalid_argument, cat("the communicator of ", what, " is destroyed"),
              {.remedy = "keep the communicator until its calls are complete"});
}

CommunicatorImpl& require(const std::shared_ptr<CommunicatorImpl>& impl) {
  if (!impl) refuse_empty();
  return *impl;
}

// Returns the communicator of the call's queue.
const std::shared_ptr<CommunicatorImpl>& in_queue(const std::shared_ptr<CommunicatorImpl>& impl,
                                                  const CallOptions& options) {
  if (!impl) refuse_empty();
  return options.queue == 0 ? impl : impl->queue_of(options.queue);
}

}  // namespace

int Communicator::rank() const { return require(impl_).rank(); }
int Communicator::size() const { return require(impl_).size(); }
std::string Communicator::transport() const { return require(impl_).transport_name(); }
std::optional<int> Communicator::member(int rank_of_job) const {
  const int found = require(impl_).member(rank_of_job);
  return found < impl_->size() ? std::optional(found) : std::nullopt;
}

Membership Communicator::membership() const { return require(impl_).membership(); }

std::string Communicator::describe(int rank) const {
  if (rank < 0 || rank >= size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("describe: rank ", rank, " is not in the range 0 to ", size() - 1));
  }
  return impl_->describe(rank);
}

void Communicator::while_waiting(std::function<void()> hook) {
  require(impl_).while_waiting(std::move(hook));
}

const InitStats& Communicator::init_stats() const { return require(impl_).init_stats(); }

void Communicator::abort(const std::string& reason) { require(impl_).abort(reason); }

std::optional<Error> Communicator::failure() const { return require(impl_).failure(); }

Communicator Communicator::grow(int count) {
  if (count < 0) {
    throw Error(ErrorCode::invalid_argument, cat("grow: the number of ranks is negative: ", count));
  }
  return Communicator(require(impl_).survivors().grow(count));
}

Communicator Communicator::shrink() { return Communicator(require(impl_).survivors().shrink()); }

Agreement Communicator::agree(uint64_t flags) { return require(impl_).agree(flags); }

Communicator Communicator::split(int color, int key) {
  return Communicator(require(impl_).split(color, key));
}

Communicator Communicator::create(std::span<const int> ranks, int tag) {
  return Communicator(require(impl_).create(ranks, tag));
}

void Communicator::open_queues(int count) { require(impl_).open_queues(count); }

namespace {

size_t checked_bytes(size_t count, size_t element_bytes) {
  size_t bytes = 0;
  if (!__builtin_mul_overflow(count, element_bytes, &bytes) && bytes <= PTRDIFF_MAX) return bytes;
  throw Error(
      ErrorCode::invalid_argument,
      cat("allocate: ", count, " elements of ", element_bytes, " bytes exceed the address space"),
      {.cause = "the count is a negative number, or its computation overflowed"});
}

}  // namespace

std::shared_ptr<void> Communicator::device_bytes(size_t count, size_t element_bytes) {
  return internal::allocate_on_device(checked_bytes(count, element_bytes));
}

Registration Communicator::register_window(void* data, size_t bytes) {
  return require(impl_).register_window(data, bytes);
}

std::shared_ptr<void> Communicator::allocate_bytes(size_t count, size_t element_bytes) {
  const size_t bytes = checked_bytes(count, element_bytes);
  if (Paths* const paths = require(impl_).paths()) {
    if (std::shared_ptr<void> memory = paths->allocate(bytes)) return memory;
  }
  const size_t mapped = std::max<size_t>(bytes, 1);
  void* memory =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw system_error(cat("allocating ", bytes, " bytes"), errno, memory_detail());
  return {memory, [mapped](void* base) { ::munmap(base, mapped); }};
}

Registration Communicator::register_memory(void* data, size_t bytes) {
  if ((data == nullptr && bytes > 0) || !may_be_memory(data, bytes)) {
    throw Error(ErrorCode::invalid_argument, cat("register_memory: ", bytes, " bytes at ", data,
                                                 " are not memory of this process"));
  }
  Paths* const paths = require(impl_).paths();
  if (paths == nullptr) return {};
  return paths->register_memory({static_cast<std::byte*>(data), bytes});
}

// ---- calls

namespace {

// Returns true if the call's buffers are in device memory. Buffers that the rank does not use are
// ignored.
bool is_on_device(const Request& request, const CommunicatorImpl& comm) {
  const bool in = request.input.space == MemorySpace::device;
  const bool out = request.output.space == MemorySpace::device;
  if (!in && !out) return false;
  const Collective c = request.collective;
  if (c == Collective::barrier) return false;
  if (c == Collective::send_recv) return request.sends ? in : out;
  const bool is_root = !has_root(c) || comm.rank() == request.root;
  return (in && (is_root || (c != Collective::broadcast && c != Collective::scatter))) ||
         (out && (is_root || (c != Collective::reduce && c != Collective::gather)));
}

void start_on_device(const std::shared_ptr<CommunicatorImpl>& impl, const Request& request,
                     const CallOptions& options) {
  if (request.combines) {
    throw Error(ErrorCode::unsupported, "recv_reduce: the buffer is device memory",
                {.remedy = "receive into another buffer, then add that buffer"});
  }
  if (!internal::in_group()) return impl->run_on_device(request, options);
  const bool receives = request.collective == Collective::send_recv && !request.sends;
  const auto put = [comm = std::weak_ptr(impl), request, options,
                    algorithm = std::string(options.algorithm)] {
    const std::shared_ptr<CommunicatorImpl> impl = comm.lock();
    if (!impl) refuse_destroyed("a call in a group");
    CallOptions own = options;
    own.algorithm = algorithm;
    impl->run_on_device(request, own);
  };
  internal::join_group({.device = internal::device_of(request),
                        .job = std::hash<std::string>{}(impl->engine()->control().job_name()),
                        .rank = impl->engine(),
                        .receives = receives,
                        .in_stream_of_thread = options.stream.handle == cuda::per_thread_stream(),
                        .put = put});
}

}  // namespace

Work Communicator::start(const Request& request, const CallOptions& options) {
  const std::shared_ptr<CommunicatorImpl>& impl = in_queue(impl_, options);
  if (is_on_device(request, *impl)) {
    start_on_device(impl, request, options);
    return {};
  }
  Work work(impl, impl->start(request, options));
  internal::join_group(work);
  return work;
}

void Communicator::run(const Request& request, const CallOptions& options) {
  CommunicatorImpl& impl = *in_queue(impl_, options);
  if (internal::in_group() || is_on_device(request, impl)) {
    start(request, options);
  } else {
    impl.run(request, options);
  }
}

MessageInfo Communicator::receive(const Request& request, const CallOptions& options) {
  const bool is_simple = !internal::in_group() && request.output.space == MemorySpace::host;
  if (is_simple) return in_queue(impl_, options)->receive(request, options);
  start(request, options);
  return {};
}

std::optional<MessageInfo> Communicator::probe(int from, int tag) {
  return require(impl_).probe(from, tag);
}

MessageInfo Communicator::await_message(int from, int tag) {
  return require(impl_).await_message(from, tag);
}

std::string Communicator::algorithm_of(const Request& request, const CallOptions& options) {
  CommunicatorImpl& impl = *in_queue(impl_, options);
  if (is_on_device(request, impl)) return impl.algorithm_on_device(request, options);
  return prepare(request, options).algorithm();
}

Prepared Communicator::prepare(const Request& request, const CallOptions& options) {
  const std::shared_ptr<CommunicatorImpl>& impl = in_queue(impl_, options);
  if (is_on_device(request, *impl)) {
    throw Error(ErrorCode::unsupported, "prepare: the buffers are device memory",
                {.remedy = "capture the calls in a CUDA graph, and launch the graph"});
  }
  return Prepared(impl, impl->prepare(request, options));
}

std::shared_ptr<CommunicatorImpl> Prepared::comm() const {
  if (!call_) refuse_empty();
  std::shared_ptr<CommunicatorImpl> comm = comm_.lock();
  if (!comm) refuse_destroyed("the prepared call");
  return comm;
}

Work Prepared::start() {
  const std::shared_ptr<CommunicatorImpl> comm = this->comm();
  Work work(comm, comm->start(*call_));
  internal::join_group(work);
  return work;
}

void Prepared::run() {
  if (internal::in_group()) {
    start();
  } else {
    comm()->run(*call_);
  }
}

const AbortState& internal::abort_of(const Communicator& communicator) {
  return require(communicator.impl_).abort_state();
}

Paths* internal::paths_of(const Communicator& communicator) {
  return require(communicator.impl_).paths();
}

const Plan* internal::plan_of(const Prepared& prepared) {
  return prepared.call_ ? prepared.call_->compiled->plan : nullptr;
}

std::string Prepared::algorithm() const {
  return call_ && call_->compiled->algorithm != nullptr ? call_->compiled->algorithm->name : "";
}

}  // namespace tutti
