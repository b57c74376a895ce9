#include "collectives/communicator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "base/log.h"
#include "base/text.h"
#include "collectives/communicator_impl.h"
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

// ---- creation

Communicator Communicator::init() { return init(job_from_environment()); }

Communicator Communicator::init(const Job& job) {
  set_log_rank(job.size > 1 ? job.rank : -1);
  std::shared_ptr<Control> control = Control::connect(job);
  long local = 0;
  for (int r = 0; r < control->size(); ++r) {
    if (control->peer(r).host_id == control->peer(control->rank()).host_id) ++local;
  }
  const bool oversubscribed = local > ::sysconf(_SC_NPROCESSORS_ONLN);
  auto engine = std::make_shared<internal::Engine>(control, oversubscribed);
  std::vector<int> members(control->size());
  std::iota(members.begin(), members.end(), 0);
  constexpr uint64_t kWorld = 1;
  return Communicator(
      std::make_shared<CommunicatorImpl>(engine, kWorld, std::move(members), control->rank()));
}

namespace {

// A communicator that is empty, or buffers that no call can work on, are the caller's mistakes.
CommunicatorImpl& require(const std::shared_ptr<CommunicatorImpl>& impl) {
  if (!impl) {
    throw Error(ErrorCode::invalid_argument, "the communicator is empty",
                {.cause = "this rank gave split() a negative colour, or never called init()"});
  }
  return *impl;
}

template <typename B>
void check(const B& buffer, uint64_t count, std::string_view call, std::string_view which) {
  if (buffer.space != MemorySpace::host) {
    throw Error(
        ErrorCode::unsupported, cat(call, ": ", which, " is device memory"),
        {.cause = "this build has no device transport", .remedy = "copy it to host memory"});
  }
  if (static_cast<size_t>(buffer.dtype) >= kAllDTypes.size()) {
    throw Error(ErrorCode::invalid_argument, cat(call, ": ", which, " has no known dtype"));
  }
  if (buffer.count != count) {
    throw Error(ErrorCode::invalid_argument,
                cat(call, ": ", which, " has ", buffer.count, " elements, not ", count));
  }
  if (buffer.data == nullptr && count > 0) {
    throw Error(ErrorCode::invalid_argument, cat(call, ": ", which, " is null"));
  }
}

uint64_t blocks(uint64_t count, int ranks, std::string_view call) {
  uint64_t total = 0;
  if (!__builtin_mul_overflow(count, static_cast<uint64_t>(ranks), &total)) return total;
  throw Error(ErrorCode::invalid_argument, cat(call, ": ", count, " elements a rank are too many"));
}

void check_types(const ConstBuffer& input, const Buffer& output, std::string_view call) {
  if (input.dtype == output.dtype) return;
  throw Error(ErrorCode::invalid_argument,
              cat(call, ": input is ", name(input.dtype), ", output is ", name(output.dtype)));
}

void check_op(ReduceOp op, DType dtype, std::string_view call) {
  if (static_cast<size_t>(op) >= kAllReduceOps.size()) {
    throw Error(ErrorCode::invalid_argument, cat(call, ": no such reduction operator"));
  }
  if (supports(op, dtype)) return;
  throw Error(ErrorCode::invalid_argument, cat(call, ": ", name(op), " of ", name(dtype)),
              {.cause = "bitwise operators work on integers only"});
}

void check_rank(int rank, int size, std::string_view call, std::string_view which) {
  if (rank >= 0 && rank < size) return;
  throw Error(ErrorCode::invalid_argument,
              cat(call, ": ", which, " ", rank, " is not in 0 to ", size - 1));
}

}  // namespace

int Communicator::rank() const { return require(impl_).rank(); }
int Communicator::size() const { return require(impl_).size(); }
std::string Communicator::transport() const { return require(impl_).transport_name(); }
std::string Communicator::describe(int rank) const {
  check_rank(rank, size(), "describe", "rank");
  return impl_->describe(rank);
}

void Communicator::abort(const std::string& reason) {
  require(impl_).abort(Error(ErrorCode::aborted, cat(describe(rank()), " aborted: ", reason)));
}

Communicator Communicator::split(int color, int key) {
  return Communicator(require(impl_).split(color, key));
}

std::shared_ptr<void> Communicator::allocate_bytes(size_t count, size_t element_bytes) {
  require(impl_);
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes)) {
    throw Error(ErrorCode::invalid_argument, cat("allocate: ", count, " elements are too many"));
  }
  const size_t mapped = std::max<size_t>(bytes, 1);
  void* memory =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw system_error(cat("allocating ", bytes, " bytes"), errno);
  return {memory, [mapped](void* base) { ::munmap(base, mapped); }};
}

// ---- calls

Work Communicator::all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op,
                                    const CallOptions& options) {
  require(impl_);
  check(input, output.count, "all_reduce", "input");
  check(output, output.count, "all_reduce", "output");
  check_types(input, output, "all_reduce");
  check_op(op, output.dtype, "all_reduce");
  return Work(impl_,
              impl_->start({Collective::all_reduce, input, output, op, 0, output.count}, options));
}

Work Communicator::all_gather_async(ConstBuffer input, Buffer output, const CallOptions& options) {
  require(impl_);
  check(input, input.count, "all_gather", "input");
  check(output, blocks(input.count, size(), "all_gather"), "all_gather", "output");
  check_types(input, output, "all_gather");
  return Work(impl_,
              impl_->start({Collective::all_gather, input, output, ReduceOp::sum, 0, input.count},
                           options));
}

Work Communicator::reduce_scatter_async(ConstBuffer input, Buffer output, ReduceOp op,
                                        const CallOptions& options) {
  require(impl_);
  check(output, output.count, "reduce_scatter", "output");
  check(input, blocks(output.count, size(), "reduce_scatter"), "reduce_scatter", "input");
  check_types(input, output, "reduce_scatter");
  check_op(op, output.dtype, "reduce_scatter");
  return Work(impl_, impl_->start({Collective::reduce_scatter, input, output, op, 0, output.count},
                                  options));
}

Work Communicator::broadcast_async(ConstBuffer input, Buffer output, int root,
                                   const CallOptions& options) {
  require(impl_);
  check_rank(root, size(), "broadcast", "root");
  check(output, output.count, "broadcast", "output");
  if (rank() == root) {
    check(input, output.count, "broadcast", "input");
    check_types(input, output, "broadcast");
  }
  return Work(
      impl_, impl_->start({Collective::broadcast, input, output, ReduceOp::sum, root, output.count},
                          options));
}

Work Communicator::reduce_async(ConstBuffer input, Buffer output, ReduceOp op, int root,
                                const CallOptions& options) {
  require(impl_);
  check_rank(root, size(), "reduce", "root");
  check(input, input.count, "reduce", "input");
  check_op(op, input.dtype, "reduce");
  if (rank() == root) {
    check(output, input.count, "reduce", "output");
    check_types(input, output, "reduce");
  }
  output.dtype = input.dtype;
  return Work(impl_,
              impl_->start({Collective::reduce, input, output, op, root, input.count}, options));
}

Work Communicator::barrier_async(const CallOptions& options) {
  require(impl_);
  return Work(impl_, impl_->start({.collective = Collective::barrier}, options));
}

namespace {

void check_peer(int peer, int rank, int size, std::string_view call) {
  check_rank(peer, size, call, "rank");
  if (peer != rank) return;
  throw Error(ErrorCode::invalid_argument, cat(call, ": rank ", rank, " cannot talk to itself"));
}

}  // namespace

Work Communicator::send_async(ConstBuffer buffer, int to, const CallOptions& options) {
  check_peer(to, rank(), size(), "send");
  check(buffer, buffer.count, "send", "buffer");
  return Work(impl_, impl_->start_p2p(true, static_cast<const std::byte*>(buffer.data), nullptr,
                                      buffer.count, buffer.dtype, to, options));
}

Work Communicator::recv_async(Buffer buffer, int from, const CallOptions& options) {
  check_peer(from, rank(), size(), "recv");
  check(buffer, buffer.count, "recv", "buffer");
  return Work(impl_, impl_->start_p2p(false, nullptr, static_cast<std::byte*>(buffer.data),
                                      buffer.count, buffer.dtype, from, options));
}

void Communicator::all_reduce(ConstBuffer input, Buffer output, ReduceOp op,
                              const CallOptions& options) {
  all_reduce_async(input, output, op, options).wait();
}
void Communicator::all_gather(ConstBuffer input, Buffer output, const CallOptions& options) {
  all_gather_async(input, output, options).wait();
}
void Communicator::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op,
                                  const CallOptions& options) {
  reduce_scatter_async(input, output, op, options).wait();
}
void Communicator::broadcast(ConstBuffer input, Buffer output, int root,
                             const CallOptions& options) {
  broadcast_async(input, output, root, options).wait();
}
void Communicator::reduce(ConstBuffer input, Buffer output, ReduceOp op, int root,
                          const CallOptions& options) {
  reduce_async(input, output, op, root, options).wait();
}
void Communicator::barrier(const CallOptions& options) { barrier_async(options).wait(); }
void Communicator::send(ConstBuffer buffer, int to, const CallOptions& options) {
  send_async(buffer, to, options).wait();
}
void Communicator::recv(Buffer buffer, int from, const CallOptions& options) {
  recv_async(buffer, from, options).wait();
}

}  // namespace tutti
