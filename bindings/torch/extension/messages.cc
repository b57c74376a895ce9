// Implements the Backend's messages, barriers and coalesced calls.
#include <c10/util/Exception.h>

#include <string>
#include <thread>
#include <utility>

#include "backend.h"
#include "values.h"

namespace tutti::torch_backend {

using c10d::OpType;

namespace {

void check_peer(int peer, int size, const char* call) {
  TORCH_CHECK_VALUE(peer >= 0 && peer < size, "tutti: ", call, ": invalid rank ", peer, " of ",
                    size);
}

}  // namespace

Future Backend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor source = input_of(only(tensors, "send"));
  check_peer(to, size_, "send");
  Task task = task_of("send", OpType::SEND, TUTTI_SEND);

  task.request.root = to;
  task.request.input = elements_of(source);
  task.tag = tag;
  task.tensors = {source};
  task.inputs = tensors;
  task.outputs = tensors;
  return make(std::move(task), c10d::kUnsetTimeout, true);
}

Task Backend::receive_of(Tensors& tensors, int from, int tag) const {
  const at::Tensor& tensor = only(tensors, "recv");
  Task task = task_of("recv", OpType::RECV, TUTTI_RECV);

  task.request.root = from;
  const at::Tensor target = output_of(tensor, task);
  task.request.output = elements_of(target);
  task.tag = tag;
  task.tensors = {target};
  task.inputs = {tensor};
  task.outputs = {tensor};
  return task;
}

Future Backend::recv(Tensors& tensors, int from, int tag) {
  check_peer(from, size_, "recv");
  return make(receive_of(tensors, from, tag), c10d::kUnsetTimeout, true);
}

Future Backend::recvAnysource(Tensors& tensors, int tag) {
  Task task = receive_of(tensors, TUTTI_ANY_SOURCE, tag);
  task.name = "recvAnySource";  // the name that profilers of torch's other backends show
  task.type = OpType::RECVANYSOURCE;
  return make(std::move(task), c10d::kUnsetTimeout, true);
}

Future Backend::barrier(const c10d::BarrierOptions& options) {
  return make(task_of("barrier", OpType::BARRIER, TUTTI_BARRIER), options.timeout, options.asyncOp);
}

// Runs a barrier over the Store, so that rank 0 can name missing ranks and the communicator
// survives. Each rank announces itself, and rank 0 answers with "go" or the missing ranks.
void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  // A timeout of 0 is valid in this function, as for torch's other backends.
  const auto timeout =
      options.timeout.count() == 0 ? options.timeout : timeout_or_own(options.timeout);
  const auto late = std::chrono::steady_clock::now() + timeout;
  const std::string prefix = "tutti/monitored/" + std::to_string(monitored_barriers_++) + "/";
  const auto comes = [&](const std::string& key) {
    while (!store_->check({prefix + key})) {
      // Once the group is destroyed, use() throws, so that the wait ends.
      static_cast<void>(connection_->use("monitored_barrier"));
      if (std::chrono::steady_clock::now() >= late) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  };
  if (rank_ != 0) {
    store_->set(prefix + std::to_string(rank_), std::string("here"));
    const bool announced = comes("go");
    TORCH_CHECK_WITH(
        DistBackendError, announced && store_->get_to_str(prefix + "go") == "go", "Rank ", rank_,
        " successfully reached monitoredBarrier, but received errors while "
        "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.");
    return;
  }
  if (timeout.count() == 0) {
    store_->set(prefix + "go", std::string("no"));
    TORCH_CHECK_WITH(DistBackendError, false,
                     "Rank 0 timed out in monitoredBarrier after 0 ms, before it could look for "
                     "the others; give it more time");
  }
  std::string missing;
  int count = 0;
  for (int rank = 1; rank < size_ && (count == 0 || wait_all_ranks); ++rank) {
    if (comes(std::to_string(rank))) continue;
    missing += (count++ == 0 ? "" : ", ") + std::to_string(rank);
  }
  store_->set(prefix + "go", std::string(count == 0 ? "go" : "no"));
  TORCH_CHECK_WITH(DistBackendError, count == 0, count == 1 ? "Rank " : "Ranks ", missing,
                   " failed to pass monitoredBarrier in ", timeout.count(), " ms");
}

Future Backend::endCoalescing() {
  TORCH_CHECK(coalescing_.has_value(), "tutti: endCoalescing() without startCoalescing()");
  std::vector<std::shared_ptr<Call>> calls = std::move(*coalescing_);
  coalescing_.reset();
  return c10::make_intrusive<Work>(rank_, OpType::COALESCED, std::move(calls));
}

}  // namespace tutti::torch_backend
