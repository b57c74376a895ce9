// NCCL's communication functions. Each becomes a request on device memory, which is enqueued on the
// caller's stream, or collected by the group.
#include <cstdint>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "base/reduce.h"
#include "base/text.h"
#include "bindings/exact_double.h"
#include "bindings/nccl/comm.h"
#include "collectives/request.h"

namespace tutti::nccl {
namespace {

constexpr DType kTypes[] = {DType::i8,  DType::u8,   DType::i32,    DType::u32,
                            DType::i64, DType::u64,  DType::f16,    DType::f32,
                            DType::f64, DType::bf16, DType::f8e4m3, DType::f8e5m2};
static_assert(std::size(kTypes) == ncclNumTypes);
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min,
                             ReduceOp::avg};
static_assert(std::size(kOps) == ncclNumOps);

DType type_of(ncclDataType_t type) {
  if (type < 0 || type >= ncclNumTypes) invalid(cat("unknown ncclDataType_t ", int{type}));
  return kTypes[type];
}

Reduction reduction_of(ncclComm& comm, ncclRedOp_t op) {
  if (op >= 0 && op < ncclNumOps) return kOps[op];
  const std::lock_guard lock(comm.mutex);
  const auto found = comm.factors.find(op);
  if (found == comm.factors.end()) invalid(cat("unknown ncclRedOp_t ", int{op}));
  return Reduction::premul_sum(found->second);
}

struct Call {
  ncclComm& comm;
  DType dtype;
  CUstream_st* stream;

  uint64_t ranks() const { return static_cast<uint64_t>(comm.communicator.size()); }
  ConstBuffer in(const void* data, uint64_t count) const {
    return {data, count, dtype, MemorySpace::device};
  }
  Buffer out(void* data, uint64_t count) const { return {data, count, dtype, MemorySpace::device}; }
  void run(const Request& request) const { comm.communicator.run(request, {.stream = {stream}}); }
};

// Makes a Call from the arguments and passes it to `act`.
template <typename Act>
ncclResult_t call(ncclComm_t comm, ncclDataType_t type, cudaStream_t stream, const Act& act) {
  return guarded([&] {
    Use own = use(comm);
    act(Call{*own, type_of(type), stream});
    use_in_group(std::move(own));
  });
}

template <typename T>
double read_as(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  if constexpr (std::is_integral_v<T>) {
    if (const std::optional<double> factor = exact_double(value)) return *factor;
    throw Error(ErrorCode::unsupported, cat("the scalar ", value, " has more than 53 bits"),
                {.cause = "Tutti's factors are of type double, which cannot represent it",
                 .remedy = "multiply the input by it, and use ncclSum"});
  } else {
    return value;
  }
}

double value_of(const std::byte* bytes, DType dtype) {
  switch (dtype) {
    case DType::i8:
      return read_as<int8_t>(bytes);
    case DType::u8:
      return read_as<uint8_t>(bytes);
    case DType::i32:
      return read_as<int32_t>(bytes);
    case DType::u32:
      return read_as<uint32_t>(bytes);
    case DType::i64:
      return read_as<int64_t>(bytes);
    case DType::u64:
      return read_as<uint64_t>(bytes);
    case DType::f32:
      return read_as<float>(bytes);
    case DType::f64:
      return read_as<double>(bytes);
    default: {
      float value = 0;
      widen(&value, bytes, 1, dtype);
      return value;
    }
  }
}

double scalar_of(const void* scalar, DType dtype, ncclScalarResidence_t residence) {
  std::byte bytes[8] = {};
  if (residence == ncclScalarHostImmediate) {
    std::memcpy(bytes, scalar, size_of(dtype));
  } else {
    const cuda::Context context(cuda::current_device());
    const cuda::CurrentContext current(context);
    const cuda::Stream stream(context);
    cuda::copy_async(bytes, scalar, size_of(dtype), stream.handle());
    cuda::synchronize(stream.handle());
  }
  return value_of(bytes, dtype);
}

}  // namespace
}  // namespace tutti::nccl

using tutti::as_const;
using tutti::Request;
using tutti::nccl::call;
using tutti::nccl::Call;
using tutti::nccl::checked;
using tutti::nccl::guarded;
using tutti::nccl::invalid;
using tutti::nccl::reduction_of;
using tutti::nccl::use;
using tutti::nccl::Use;

// NOLINTBEGIN(readability-identifier-naming): NCCL's names

// ---- operators

// Creates an operator. A scalar on the device is read now, not when a collective runs.
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded([&] {
    checked(op, "the output pointer for the operator");
    checked(static_cast<char*>(scalar), "the scalar");
    const double factor = tutti::nccl::scalar_of(scalar, tutti::nccl::type_of(type), residence);
    const Use own = use(comm);
    const std::lock_guard lock(own->mutex);
    const int number = ncclNumOps + own->operators_made++;
    own->factors[number] = factor;
    *op = static_cast<ncclRedOp_t>(number);
  });
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return guarded([&] {
    const Use own = use(comm);
    const std::lock_guard lock(own->mutex);
    if (own->factors.erase(op) == 0)
      invalid("ncclRedOpDestroy: not an operator of this communicator");
  });
}

// ---- collectives

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, stream, [&](const Call& c) {
    c.run(Request::all_reduce(c.in(send, count), c.out(receive, count), reduction_of(c.comm, op)));
  });
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, stream, [&](const Call& c) {
    c.run(
        Request::reduce(c.in(send, count), c.out(receive, count), reduction_of(c.comm, op), root));
  });
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, stream, [&](const Call& c) {
    c.run(Request::broadcast(c.in(send, count), c.out(receive, count), root));
  });
}

ncclResult_t ncclBcast(void* memory, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(memory, memory, count, type, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t received,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return call(comm, type, stream, [&](const Call& c) {
    c.run(Request::reduce_scatter(c.in(send, received * c.ranks()), c.out(receive, received),
                                  reduction_of(c.comm, op)));
  });
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t sent, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, stream, [&](const Call& c) {
    c.run(Request::all_gather(c.in(send, sent), c.out(receive, sent * c.ranks())));
  });
}

ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, stream, [&](const Call& c) {
    const uint64_t all = count * c.ranks();
    c.run(Request::all_to_all(c.in(send, all), c.out(receive, all)));
  });
}

ncclResult_t ncclGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, stream, [&](const Call& c) {
    c.run(Request::gather(c.in(send, count), c.out(receive, count * c.ranks()), root));
  });
}

ncclResult_t ncclScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, stream, [&](const Call& c) {
    c.run(Request::scatter(c.in(send, count * c.ranks()), c.out(receive, count), root));
  });
}

// ---- messages

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return call(comm, type, stream,
              [&](const Call& c) { c.run(Request::send(c.in(send, count), peer)); });
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, type, stream,
              [&](const Call& c) { c.run(Request::recv(c.out(receive, count), peer)); });
}
// NOLINTEND(readability-identifier-naming)
