// Process groups: creation, destruction, and the start of their calls.
#include "backend.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "joining.h"

namespace tutti::torch_backend {

Backend::Backend(std::shared_ptr<Connection> connection, c10::intrusive_ptr<c10d::Store> store,
                 int rank, int size, std::chrono::milliseconds timeout)
    : c10d::Backend(rank, size),
      connection_(std::move(connection)),
      store_(std::move(store)),
      timeout_(timeout) {}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions() {
  return c10::make_intrusive<Options>("tutti", timeout_.load());
}

std::chrono::milliseconds Backend::timeout_or_own(std::chrono::milliseconds given) const {
  return given.count() > 0 ? given : timeout_.load();
}

// Counts a collective. torch's debug mode compares these numbers between ranks, so point-to-point
// messages do not count.
uint64_t Backend::count(const Task& task) {
  const bool is_message =
      task.request.collective == TUTTI_SEND || task.request.collective == TUTTI_RECV;
  return is_message ? collectives_.load() : ++collectives_;
}

Future Backend::begin(c10d::OpType type, std::span<Task> tasks, std::chrono::milliseconds timeout) {
  auto work = c10::make_intrusive<Work>(rank_, type, tasks);
  for (Task& task : tasks) {
    task.timeout = timeout_or_own(timeout);
    work->sequence = count(task);
    auto call = Call::start(connection_, std::move(task));
    if (coalescing_) coalescing_->push_back(call);
    work->add(std::move(call));
  }
  return work;
}

Future Backend::make(Task task, std::chrono::milliseconds timeout, bool asynchronous) {
  const c10d::OpType type = task.type;
  const std::span<Task> alone(&task, 1);
  if (asynchronous || coalescing_) return begin(type, alone, timeout);
  auto work = c10::make_intrusive<Work>(rank_, type, alone);
  task.timeout = timeout_or_own(timeout);
  work->sequence = count(task);
  Call::run(*connection_, std::move(task));
  return work;
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) return nullptr;
  return c10::make_intrusive<Backend>(
      connection_->among(ranks), store, static_cast<int>(own - ranks.begin()),
      static_cast<int>(ranks.size()), options ? options->timeout : timeout_.load());
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const c10::intrusive_ptr<Options>& options,
                                                 const int& rank, const int& size) {
  const auto timeout = options ? options->timeout : timeout_.load();
  return c10::make_intrusive<Backend>(join(store, rank, size, timeout), store, rank, size, timeout);
}

void Backend::abort() {
  connection_->abort("rank " + std::to_string(rank_) + " called abort() of its process group");
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  const auto type = c10::typeMetaToScalarType(options.dtype());
  TORCH_CHECK(options.device().is_cpu(), "tutti: allocate_tensor: memory on ", options.device(),
              " is not supported by this backend");
  TORCH_CHECK(size >= 0, "tutti: allocate_tensor: ", size, " elements are not a valid size");
  void* data = connection_->allocate(static_cast<size_t>(size) * c10::elementSize(type));
  return at::from_blob(
      data, {size}, [connection = connection_](void* memory) { connection->release(memory); },
      options);
}

}  // namespace tutti::torch_backend
