#include "bench/measure.h"

#include <algorithm>
#include <cstring>

#include "base/deadline.h"
#include "base/error.h"
#include "base/text.h"
#include "bench/pattern.h"

namespace tutti::bench {

namespace {

constexpr int kRoot = 0;

uint64_t input_blocks(Collective collective, int ranks) {
  return has_input_blocks(collective) ? ranks : 1;
}
uint64_t output_blocks(Collective collective, int ranks) {
  return has_output_blocks(collective) ? ranks : 1;
}

}  // namespace

uint64_t element_count(const Case& c, int ranks) {
  if (c.collective == Collective::barrier) return 0;
  const uint64_t blocks =
      std::max(input_blocks(c.collective, ranks), output_blocks(c.collective, ranks));
  return c.bytes / (size_of(c.dtype) * blocks);
}

uint64_t real_bytes(const Case& c, int ranks) {
  const uint64_t blocks =
      std::max(input_blocks(c.collective, ranks), output_blocks(c.collective, ranks));
  return element_count(c, ranks) * blocks * size_of(c.dtype);
}

double bus_factor(Collective collective, int ranks) {
  const double p = ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (p - 1) / p;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      return (p - 1) / p;
    default:
      return 1;
  }
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Measurement::Measurement(Communicator& comm, const Case& c)
    : comm_(comm), case_(c), count_(element_count(c, comm.size())) {
  const int p = comm.size();
  const uint64_t size = size_of(c.dtype);
  const uint64_t inputs = count_ * input_blocks(c.collective, p);
  const uint64_t outputs = count_ * output_blocks(c.collective, p);
  pristine_.resize(inputs * size);
  fill_pattern(c.dtype, c.op, p, comm.rank(), 0, inputs, pristine_.data());
  input_ = comm.allocate<std::byte>(inputs * size);
  output_ = comm.allocate<std::byte>(outputs * size);
  input_buffer_ = {input_.get(), inputs, c.dtype};
  output_buffer_ = {output_.get(), outputs, c.dtype};
}

Request Measurement::request() const {
  const ConstBuffer in = as_const(input_buffer_);
  switch (case_.collective) {
    case Collective::all_reduce:
      return Request::all_reduce(in, output_buffer_, case_.op);
    case Collective::all_gather:
      return Request::all_gather(in, output_buffer_);
    case Collective::reduce_scatter:
      return Request::reduce_scatter(in, output_buffer_, case_.op);
    case Collective::broadcast:
      return Request::broadcast(in, output_buffer_, kRoot);
    case Collective::reduce:
      return Request::reduce(in, output_buffer_, case_.op, kRoot);
    case Collective::gather:
      return Request::gather(in, output_buffer_, kRoot);
    case Collective::scatter:
      return Request::scatter(in, output_buffer_, kRoot);
    case Collective::all_to_all:
      return Request::all_to_all(in, output_buffer_);
    case Collective::scan:
      return Request::scan(in, output_buffer_, case_.op);
    case Collective::exscan:
      return Request::exscan(in, output_buffer_, case_.op);
    case Collective::barrier:
      return Request::barrier();
    case Collective::send_recv:
      break;
  }
  throw Error(ErrorCode::unsupported, cat("no benchmark for ", name(case_.collective)));
}

void Measurement::call() { comm_.run(request(), {.algorithm = case_.algorithm}); }

std::string Measurement::algorithm() const {
  return comm_.prepare(request(), {.algorithm = case_.algorithm}).algorithm();
}

std::vector<double> Measurement::run(int warm_up, int timed) {
  std::vector<double> times;
  for (int i = 0; i < warm_up + timed; ++i) {
    if (!pristine_.empty()) std::memcpy(input_.get(), pristine_.data(), pristine_.size());
    comm_.barrier();
    const int64_t start = now_ns();
    call();
    const int64_t end = now_ns();
    if (i >= warm_up) times.push_back(static_cast<double>(end - start) / 1000);
  }
  comm_.all_reduce(std::span(times), ReduceOp::max);
  return times;
}

uint64_t Measurement::count_wrong() {
  const int p = comm_.size();
  const uint64_t size = size_of(case_.dtype);
  const uint64_t outputs = output_buffer_.count;
  std::vector<std::byte> expected(outputs * size);
  const auto rank = static_cast<uint64_t>(comm_.rank());
  bool has_output = true;
  switch (case_.collective) {
    case Collective::all_reduce:
      fill_expected(case_.dtype, case_.op, p, 0, outputs, expected.data());
      break;
    case Collective::reduce:
      has_output = comm_.rank() == kRoot;
      fill_expected(case_.dtype, case_.op, p, 0, outputs, expected.data());
      break;
    case Collective::reduce_scatter:
      fill_expected(case_.dtype, case_.op, p, rank * count_, outputs, expected.data());
      break;
    case Collective::broadcast:
      fill_pattern(case_.dtype, case_.op, p, kRoot, 0, outputs, expected.data());
      break;
    case Collective::all_gather:
      for (int r = 0; r < p; ++r) {
        fill_pattern(case_.dtype, case_.op, p, r, 0, count_, expected.data() + r * count_ * size);
      }
      break;
    default:
      has_output = false;
  }
  uint64_t wrong =
      has_output ? bench::count_wrong(case_.dtype, output_.get(), expected.data(), outputs) : 0;
  comm_.all_reduce(std::span(&wrong, 1));
  if (outputs > 0) std::memset(output_.get(), 0xa5, outputs * size);  // the next call starts clean
  return wrong;
}

}  // namespace tutti::bench
