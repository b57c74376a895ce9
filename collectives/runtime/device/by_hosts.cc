#include "collectives/runtime/device/by_hosts.h"

#include <algorithm>
#include <utility>

#include "base/dtype.h"

namespace tutti::internal {

namespace {

// Below this size, additional kernels cost more than the bytes saved between hosts.
constexpr uint64_t kLeast = 32 << 10;

// Returns true if reducing within hosts, and then across hosts, gives the call's result, except for
// rounding. Integer averages would be rounded twice.
bool composes(const Request& request) {
  return !reduces(request.collective) || request.op.op != ReduceOp::avg ||
         is_float(request.output.dtype);
}

Reduction across_hosts(const Reduction& inside) {
  return inside.op == ReduceOp::premul_sum ? Reduction(ReduceOp::sum) : inside;
}

Blocks equal_parts(uint64_t count, int ranks) {
  Blocks blocks;
  const auto p = static_cast<uint64_t>(ranks);
  uint64_t start = 0;
  for (uint64_t r = 0; r < p; ++r) {
    blocks.counts.push_back(count / p + (r < count % p ? 1 : 0));
    blocks.displacements.push_back(start);
    start += blocks.counts.back();
  }
  return blocks;
}

std::vector<int> ranks_at(const Hosts& hosts, int position) {
  std::vector<int> ranks;
  for (int rank = 0; rank < hosts.ranks(); ++rank) {
    if (hosts.position_of(rank) == position) ranks.push_back(rank);
  }
  return ranks;
}

Buffer part_of(const Buffer& whole, uint64_t first, uint64_t count) {
  Buffer part = whole;
  part.data = static_cast<std::byte*>(whole.data) + first * size_of(whole.dtype);
  part.count = count;
  return part;
}

}  // namespace

bool ByHosts::can(const Request& request, const Hosts& hosts) {
  const Collective c = request.collective;
  const bool known =
      c == Collective::all_reduce || c == Collective::all_gather || c == Collective::reduce_scatter;
  const int each = hosts.largest();
  return known && !request.uneven && composes(request) && each > 1 && hosts.count() > 1 &&
         each * hosts.count() == hosts.ranks() &&
         std::max(request.input.bytes(), request.output.bytes()) >= kLeast;
}

ByHosts::ByHosts(int rank, const Hosts& hosts, int device, std::shared_ptr<DevicePeers> inside,
                 std::shared_ptr<DevicePeers> across)
    : rank_(rank),
      hosts_(hosts),
      context_(device),
      inside_(std::move(inside)),
      across_(std::move(across)),
      at_position_(ranks_at(hosts, hosts.position_of(rank))),
      order_(context_) {}

ByHosts::~ByHosts() = default;

Blocks ByHosts::blocks_of(const std::vector<int>& ranks, uint64_t count) {
  Blocks blocks;
  for (const int rank : ranks) {
    blocks.counts.push_back(count);
    blocks.displacements.push_back(static_cast<uint64_t>(rank) * count);
  }
  return blocks;
}

std::vector<int> ByHosts::on_host(int host) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < hosts_.ranks(); ++rank) {
    if (hosts_.host_of(rank) == host) ranks.push_back(rank);
  }
  return ranks;
}

void ByHosts::run(const Request& request, const CallOptions& options) {
  switch (request.collective) {
    case Collective::all_gather:
      return all_gather(request, options);
    case Collective::reduce_scatter:
      return reduce_scatter(request, options);
    default:
      return all_reduce(request, options);
  }
}

// Runs the parts of an all_reduce. Partial results are stored in the output buffer, which holds all
// elements on every rank.
void ByHosts::all_reduce(const Request& request, const CallOptions& options) {
  const Blocks blocks = equal_parts(request.output.count, inside_->size());
  const auto mine = static_cast<size_t>(inside_->rank());
  const Buffer part = part_of(request.output, blocks.displacements[mine], blocks.counts[mine]);
  inside_->run_on_device(Request::reduce_scatterv(request.input, part, blocks, request.op),
                         options);
  across_->run_on_device(Request::all_reduce(as_const(part), part, across_hosts(request.op)),
                         options);
  inside_->run_on_device(Request::all_gatherv(as_const(part), request.output, blocks), options);
}

// First reduces within this host the blocks of all GPUs at this rank's position, one block per
// host; then reduces across hosts.
void ByHosts::reduce_scatter(const Request& request, const CallOptions& options) {
  const cuda::CurrentContext current(context_);
  const auto stream = static_cast<cuda::CUstream>(options.stream.handle);
  const uint64_t count = request.output.count;
  const size_t bytes = at_position_.size() * request.output.bytes();
  if (partial_.empty() || partial_.back().size() < bytes) {
    const cuda::BesideCaptures beside;
    partial_.emplace_back(context_, bytes);
  }
  order_.begin(stream);
  Buffer partial = request.output;
  partial.data = partial_.back().data();
  partial.count = at_position_.size() * count;
  for (size_t i = 0; i < at_position_.size(); ++i) {
    const Blocks blocks = blocks_of(on_host(hosts_.host_of(at_position_[i])), count);
    inside_->run_on_device(
        Request::reduce_scatterv(request.input, part_of(partial, i * count, count), blocks,
                                 request.op),
        options);
  }
  across_->run_on_device(
      Request::reduce_scatter(as_const(partial), request.output, across_hosts(request.op)),
      options);
  order_.end(stream);
}

// First gathers the blocks of all GPUs at this rank's position, one block per host. Then gathers,
// for each host, that host's other blocks from the GPUs of this host.
void ByHosts::all_gather(const Request& request, const CallOptions& options) {
  const uint64_t count = request.input.count;
  across_->run_on_device(
      Request::all_gatherv(request.input, request.output, blocks_of(at_position_, count)), options);
  for (const int rank : at_position_) {
    const Blocks blocks = blocks_of(on_host(hosts_.host_of(rank)), count);
    const Buffer part = part_of(request.output, static_cast<uint64_t>(rank) * count, count);
    inside_->run_on_device(Request::all_gatherv(as_const(part), request.output, blocks), options);
  }
}

}  // namespace tutti::internal
