#include "collectives/communicator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "base/log.h"
#include "base/processors.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator_impl.h"
#include "collectives/group.h"
#include "collectives/interchange/msccl_import.h"
#include "transport/bootstrap/job.h"

namespace tutti {

using internal::CommunicatorImpl;

// ---- Work

bool Work::test() { return !operation_ || comm_->test(*operation_, patience_); }

void Work::wait() {
  if (operation_) comm_->wait(*operation_, Deadline::never(), patience_);
}

bool Work::wait_for(std::chrono::nanoseconds timeout) {
  return !operation_ || comm_->wait(*operation_, Deadline::after(timeout), patience_);
}

void Work::abort(const std::string& reason) {
  if (!operation_ || test()) return;
  comm_->abort(reason);
}

// ---- creation

Communicator Communicator::init() { return init(job_from_environment()); }

Communicator Communicator::init(const Job& job) {
  set_log_rank(job.size > 1 ? job.rank : -1);
  load_algorithm_files();
  Job noted = job;
  if (job.rank == 0 && job.size > 1) noted.note = to_json(load_cost_model());
  std::shared_ptr<Control> control = Control::connect(noted);
  int local = 0;
  for (int r = 0; r < control->size(); ++r) {
    if (control->peer(r).host_id == control->peer(control->rank()).host_id) ++local;
  }
  const internal::EngineOptions options{
      .oversubscribed = local > usable_processors(),
      .progress_thread = settings().get_bool("TUTTI_PROGRESS_THREAD"),
      .cost_model = job.size > 1 ? parse_cost_model(control->peer(0).note) : CostModel::defaults()};
  auto engine = std::make_shared<internal::Engine>(control, options);
  std::vector<int> members(control->size());
  std::iota(members.begin(), members.end(), 0);
  constexpr uint64_t kWorld = 1;
  return Communicator(
      std::make_shared<CommunicatorImpl>(engine, kWorld, std::move(members), control->rank()));
}

namespace {

CommunicatorImpl& require(const std::shared_ptr<CommunicatorImpl>& impl) {
  if (!impl) {
    throw Error(ErrorCode::invalid_argument, "the communicator is empty",
                {.cause = "this rank gave split() a negative colour, or never called init()"});
  }
  return *impl;
}

}  // namespace

int Communicator::rank() const { return require(impl_).rank(); }
int Communicator::size() const { return require(impl_).size(); }
std::string Communicator::transport() const { return require(impl_).transport_name(); }
std::string Communicator::describe(int rank) const {
  if (rank < 0 || rank >= size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("describe: rank ", rank, " is not in 0 to ", size() - 1));
  }
  return impl_->describe(rank);
}

void Communicator::abort(const std::string& reason) { require(impl_).abort(reason); }

Communicator Communicator::split(int color, int key) {
  return Communicator(require(impl_).split(color, key));
}

std::shared_ptr<void> Communicator::allocate_bytes(size_t count, size_t element_bytes) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes)) {
    throw Error(ErrorCode::invalid_argument, cat("allocate: ", count, " elements are too many"));
  }
  if (const std::shared_ptr<shm::Heap> heap = require(impl_).heap()) {
    if (std::byte* const memory = heap->allocate(bytes)) {
      return {memory, [heap](std::byte* data) { heap->free(data); }};
    }
  }
  const size_t mapped = std::max<size_t>(bytes, 1);
  void* memory =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw system_error(cat("allocating ", bytes, " bytes"), errno);
  return {memory, [mapped](void* base) { ::munmap(base, mapped); }};
}

Registration Communicator::register_memory(void* data, size_t bytes) {
  const std::shared_ptr<shm::Heap> heap = require(impl_).heap();
  if (!heap) return {};
  const std::span<std::byte> range(static_cast<std::byte*>(data), bytes);
  heap->adopt(range);
  return std::shared_ptr<void>(data, [heap, range](void*) { heap->release(range); });
}

// ---- calls

Work Communicator::start(const Request& request, const CallOptions& options) {
  Work work(impl_, require(impl_).start(request, options));
  internal::join_group(work);
  return work;
}

void Communicator::run(const Request& request, const CallOptions& options) {
  if (internal::in_group()) {
    start(request, options);
  } else {
    require(impl_).run(request, options);
  }
}

Prepared Communicator::prepare(const Request& request, const CallOptions& options) {
  return {impl_, require(impl_).prepare(request, options)};
}

Work Prepared::start() {
  require(comm_);
  Work work(comm_, comm_->start(*call_));
  internal::join_group(work);
  return work;
}

void Prepared::run() {
  if (internal::in_group()) {
    start();
  } else {
    require(comm_).run(*call_);
  }
}

std::string Prepared::algorithm() const {
  return call_ && call_->outline->algorithm != nullptr ? call_->outline->algorithm->name : "";
}

}  // namespace tutti
