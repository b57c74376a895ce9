// Calls as values: one struct describes every collective in every form.

#include <memory>
#include <utility>

#include "bindings/c/handles.h"
#include "collectives/group.h"

struct tutti_prepared {
  tutti::Prepared call;
};

namespace tutti::c {
namespace {

constexpr Collective kCollectives[] = {
    Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
    Collective::broadcast,  Collective::reduce,     Collective::barrier,
    Collective::send_recv,  Collective::gather,     Collective::scatter,
    Collective::all_to_all, Collective::scan,       Collective::exscan};
static_assert(kCollectives[TUTTI_EXSCAN] == Collective::exscan &&
              kCollectives[TUTTI_GATHER] == Collective::gather &&
              static_cast<int>(Collective::send_recv) == TUTTI_SEND);

// Returns the blocks of a buffer. The counts are read only if this rank's buffer consists of
// blocks, because otherwise the pointers may be invalid.
Blocks blocks_of(bool used, const uint64_t* counts, const uint64_t* displacements, int size) {
  if (!used || counts == nullptr) return {};
  const auto p = static_cast<size_t>(size);
  return Blocks::of({counts, p}, displacements == nullptr ? std::span<const uint64_t>()
                                                          : std::span(displacements, p));
}

Reduction reduction_of(const tutti_request_t& given) {
  if (given.op == TUTTI_PREMUL_SUM) return Reduction::premul_sum(given.factor);
  if (given.op != TUTTI_USER) return op_from(given.op);
  if (given.function == nullptr) invalid("op TUTTI_USER needs a function");
  const auto combine = [function = given.function, context = given.context](
                           void* dst, const void* a, const void* b, uint64_t count, DType dtype) {
    function(dst, a, b, count, static_cast<tutti_dtype_t>(dtype), context);
  };
  return Reduction::user(std::make_shared<const UserOp>(
      UserOp{.combine = combine,
             .commutative = given.not_commutative == 0,
             .identity = {reinterpret_cast<const void*>(given.function), given.context}}));
}

Request request_of(const tutti_request_t* pointer, const Communicator& comm) {
  checked(pointer, "the request");
  const tutti_request_t given = known_part(pointer, "tutti_request_t");
  const bool combines = given.collective == TUTTI_RECV_REDUCE;
  const bool receives = given.collective == TUTTI_RECV || combines;
  if (!receives && (given.collective < 0 || given.collective > TUTTI_EXSCAN)) {
    invalid(cat("collective ", given.collective, " is not a tutti_collective_t"));
  }
  Request request;
  request.collective = receives ? Collective::send_recv : kCollectives[given.collective];
  request.sends = given.collective == TUTTI_SEND;
  request.root = given.root;
  const bool point_to_point = request.collective == Collective::send_recv;
  if (request.collective != Collective::barrier) {
    if (!receives) request.input = const_buffer_from(given.input);
    if (!point_to_point || receives) request.output = buffer_from(given.output);
  }
  request.combines = combines;
  if (reduces(request.collective) || combines) request.op = reduction_of(given);
  request.uneven = given.uneven != 0;
  if (request.uneven) {
    const bool everywhere = !has_root(request.collective) || comm.rank() == request.root;
    request.input_blocks = blocks_of(everywhere && has_input_blocks(request.collective),
                                     given.input_counts, given.input_displacements, comm.size());
    request.output_blocks = blocks_of(everywhere && has_output_blocks(request.collective),
                                      given.output_counts, given.output_displacements, comm.size());
  }
  return request;
}

}  // namespace
}  // namespace tutti::c

// NOLINTBEGIN(readability-identifier-naming): C names
using tutti::c::begin;
using tutti::c::checked;
using tutti::c::guarded;
using tutti::c::of;
using tutti::c::options_of;
using tutti::c::request_of;

tutti_status_t tutti_run(tutti_comm_t* comm, const tutti_request_t* request,
                         const tutti_call_options_t* options) {
  return guarded([&] { of(comm).run(request_of(request, of(comm)), options_of(options)); });
}

tutti_status_t tutti_start(tutti_comm_t* comm, const tutti_request_t* request,
                           const tutti_call_options_t* options, tutti_work_t** work) {
  return begin(work,
               [&] { return of(comm).start(request_of(request, of(comm)), options_of(options)); });
}

tutti_status_t tutti_prepare(tutti_comm_t* comm, const tutti_request_t* request,
                             const tutti_call_options_t* options, tutti_prepared_t** prepared) {
  return guarded([&] {
    checked(prepared, "the output pointer for the prepared call") = nullptr;
    auto handle = std::make_unique<tutti_prepared>();
    handle->call = of(comm).prepare(request_of(request, of(comm)), options_of(options));
    *prepared = handle.release();
  });
}

tutti_status_t tutti_prepared_start(tutti_prepared_t* prepared, tutti_work_t** work) {
  return begin(work, [&] { return checked(prepared, "the prepared call").call.start(); });
}

void tutti_prepared_free(tutti_prepared_t* prepared) {
  const std::unique_ptr<tutti_prepared> owned(prepared);
}

tutti_status_t tutti_group_begin(void) {
  return guarded([] { tutti::group_begin(); });
}

tutti_status_t tutti_group_end(void) {
  return guarded([] { tutti::group_end(); });
}
// NOLINTEND(readability-identifier-naming)
