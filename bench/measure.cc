#include "bench/measure.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/deadline.h"
#include "base/text.h"
#include "bench/pattern.h"
#include "bench/rounding.h"
#include "bench/wire_reference.h"
#include "collectives/group.h"

namespace tutti::bench {

namespace {

uint64_t blocks_of(Collective collective, int ranks) { return has_blocks(collective) ? ranks : 1; }

Layout layout_of(const Case& c, int ranks) {
  Layout layout{.collective = c.collective,
                .ranks = ranks,
                .root = c.root,
                .count = element_count(c, ranks),
                .uneven = {}};
  if (c.uneven) layout.uneven = uneven_blocks(c.collective, ranks, layout.count);
  return layout;
}

}  // namespace

std::string name(Collective collective, bool uneven) {
  return cat(tutti::name(collective), uneven ? "v" : "");
}

bool runs_in_place(Collective collective) {
  // The first rank of exscan has no result, so its input would remain in the buffer.
  return collective != Collective::all_to_all && collective != Collective::exscan &&
         collective != Collective::send_recv && collective != Collective::barrier;
}

uint64_t element_count(const Case& c, int ranks) {
  if (c.collective == Collective::barrier) return 0;
  return c.bytes / (size_of(c.dtype) * blocks_of(c.collective, ranks));
}

uint64_t real_bytes(const Case& c, int ranks) {
  return element_count(c, ranks) * blocks_of(c.collective, ranks) * size_of(c.dtype);
}

uint64_t wire_bytes(const Case& c, int ranks) {
  if (c.wire == WireFormat::plain) return real_bytes(c, ranks);
  return blocks_of(c.collective, ranks) * bytes_of(c.wire, element_count(c, ranks));
}

Measurement::Measurement(Communicator& comm, const Case& c)
    : comm_(comm), case_(c), layout_(layout_of(c, comm.size())) {
  const int rank = comm.rank();
  const uint64_t size = size_of(c.dtype);
  const uint64_t inputs = layout_.inputs(rank);
  const uint64_t outputs = layout_.outputs(rank);
  pristine_.resize(inputs * size);
  fill_input(c.data, c.dtype, c.op, layout_, rank, pristine_.data());
  place_buffers();
  std::fill_n(output_, outputs * size, kUntouched);
  ConstBuffer in{input_, inputs, c.dtype};
  Buffer out{output_, outputs, c.dtype};
  if (c.on_device) {
    device_ = std::make_unique<DeviceSide>(
        rank, inputs * size, outputs * size, [&](const cuda::Context& context, size_t bytes) {
          return allocate_on_device(context, c.buffers == Buffers::user ? bytes : most());
        });
    in = {device_->input(), inputs, c.dtype, MemorySpace::device};
    out = {device_->output(), outputs, c.dtype, MemorySpace::device};
  }
  requests_ = requests(layout_, rank, in, out, reduction(c.data, c.op, rank));
}

void Measurement::place_buffers() {
  const int rank = comm_.rank();
  const uint64_t size = size_of(case_.dtype);
  const uint64_t inputs = layout_.inputs(rank) * size;
  const uint64_t outputs = layout_.outputs(rank) * size;
  if (!case_.in_place) {
    memory_ = allocate(inputs);
    more_memory_ = allocate(outputs);
    input_ = memory_.get();
    output_ = more_memory_.get();
    return;
  }
  memory_ = allocate(std::max(inputs, outputs));
  input_ = output_ = memory_.get();
  // If the sizes differ, the smaller buffer is this rank's block of the larger one.
  if (inputs == 0 || outputs == 0 || !has_blocks(case_.collective)) return;
  const bool gathers = has_output_blocks(case_.collective);
  const std::vector<uint64_t> counts =
      gathers ? layout_.output_counts(rank) : layout_.input_counts(rank);
  (gathers ? input_ : output_) += sum_before(counts, rank) * size;
}

// Returns the largest buffer size of any rank, because windows have the same length on all ranks.
uint64_t Measurement::most() const {
  uint64_t elements = 1;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    elements = std::max({elements, layout_.inputs(rank), layout_.outputs(rank)});
  }
  return elements * size_of(case_.dtype);
}

std::shared_ptr<std::byte> Measurement::allocate_on_device(const cuda::Context& context,
                                                           uint64_t bytes) {
  std::shared_ptr<std::byte> memory;
  if (case_.buffers == Buffers::library) {
    const auto made = Communicator::allocate_on_device<std::byte>(bytes);
    memory = {made, made.get()};
  } else {
    memory = plain_device_memory(context, bytes);
  }
  if (case_.buffers != Buffers::user) {
    registrations_.push_back(comm_.register_window(memory.get(), bytes));
  }
  return memory;
}

Memory<std::byte> Measurement::allocate(uint64_t bytes) {
  const Buffers buffers = case_.on_device ? Buffers::user : case_.buffers;
  if (buffers == Buffers::library) return comm_.allocate<std::byte>(bytes);
  constexpr size_t kPage = 4096;
  const size_t pages = bytes / kPage * kPage + kPage;
  Memory<std::byte> memory(static_cast<std::byte*>(std::aligned_alloc(kPage, pages)),
                           [](std::byte* data) { std::free(data); });
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory.get(), 0, pages);
  if (buffers == Buffers::registered) {
    registrations_.push_back(comm_.register_memory(memory.get(), pages));
  }
  return memory;
}

CallOptions Measurement::options() const {
  return {.algorithm = case_.algorithm,
          .stream = device_ ? device_->stream() : Stream{},
          .deterministic = case_.deterministic,
          .wire = case_.wire};
}

void Measurement::write_input() {
  if (device_) return device_->write_input(pristine_);
  if (!pristine_.empty()) std::memcpy(input_, pristine_.data(), pristine_.size());
}

void Measurement::call() {
  if (requests_.size() == 1) {
    comm_.run(requests_.front(), options());
    return;
  }
  if (requests_.empty() && !pristine_.empty()) {  // a single rank sends to itself
    if (device_) device_->copy_input();
    std::memcpy(output_, input_, pristine_.size());
  }
  group_begin();
  for (const Request& request : requests_) comm_.start(request, options());
  group_end();
}

double Measurement::timed_call() {
  if (!device_) {
    const int64_t start = now_ns();
    call();
    return static_cast<double>(now_ns() - start) / 1000;
  }
  device_->begin_timing();
  if (case_.graph) {
    device_->replay();
  } else {
    call();
  }
  return device_->end_timing();
}

std::string Measurement::algorithm() {
  if (requests_.size() != 1) return "";
  return comm_.algorithm_of(requests_.front(), options());
}

std::vector<double> Measurement::run(int warm_up, int timed) {
  std::vector<double> times;
  if (device_) device_->write_output(output());
  if (case_.graph) device_->capture([this] { call(); });
  for (int i = 0; i < warm_up + timed; ++i) {
    write_input();
    comm_.barrier();
    const double time = timed_call();
    if (i >= warm_up) times.push_back(time);
  }
  if (device_) device_->read_output(output());
  comm_.all_reduce(std::span(times), ReduceOp::max);
  return times;
}

Digest Measurement::digest() {
  const uint64_t bytes = layout_.outputs(comm_.rank()) * size_of(case_.dtype);
  return bench::digest(comm_, layout_, {output_, bytes});
}

uint64_t Measurement::count_wrong_here() const {
  const Case& c = case_;
  const int rank = comm_.rank();
  const bool rounds =
      c.data == Data::rounding && reduces(c.collective) && order_matters(c.dtype, c.op);
  uint64_t wrong = 0;
  if (c.wire != WireFormat::plain && !requests_.empty()) {  // a single rank copies
    const Prepared call =
        reduces(c.collective) ? comm_.prepare(requests_.front(), options()) : Prepared();
    const std::vector<float> expected = wire_reference(c.wire, c.data, c.op, layout_, rank, call);
    return bench::count_wrong(c.dtype, output_, expected.data(), expected.size());
  }
  if (!rounds || c.deterministic) {
    const std::vector<std::byte> expected = expected_output(c.data, c.dtype, c.op, layout_, rank);
    wrong = bench::count_wrong(c.dtype, output_, expected.data(), layout_.outputs(rank));
  }
  if (!rounds) return wrong;
  uint64_t outside = 0;
  // there is one part if the collective reduces
  for (const Part& part : output_parts(layout_, rank)) {
    outside += count_outside_bound(c.dtype, c.op, layout_.ranks, part.combined, part.first,
                                   part.count, output_);
  }
  return std::max(wrong, outside);
}

uint64_t Measurement::count_wrong() {
  uint64_t wrong = count_wrong_here();
  comm_.all_reduce(std::span(&wrong, 1));
  const uint64_t bytes = layout_.outputs(comm_.rank()) * size_of(case_.dtype);
  std::fill_n(output_, bytes, kUntouched);
  return wrong;
}

}  // namespace tutti::bench
