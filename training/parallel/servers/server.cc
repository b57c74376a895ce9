#include "training/parallel/servers/server.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/core/slices.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

using Clock = std::chrono::steady_clock;

Server::Server(Communicator& pushes, Communicator& answers, ParameterStorage& storage,
               const SyncOptions& options)
    : pushes_(pushes),
      answers_(answers),
      storage_(storage),
      options_(options),
      roles_(roles_of(options, pushes_.size())),
      pieces_(storage.owned()) {
  const auto elements = static_cast<size_t>(storage.owned_elements());
  const size_t rows = rows_of_a_worker() * static_cast<size_t>(workers());
  rows_ = pushes_.allocate<std::byte>(rows * elements * size_of(storage.gradient_type()));
  const DType type = storage.options().dtype;
  if (type != DType::f32) values_ = pushes_.allocate<std::byte>(elements * size_of(type));
  // Updates must not write the values with which a worker on this rank computes. The masters are
  // converted when values are sent.
  for (OwnedPiece& piece : pieces_) piece.value = {};
}

int64_t Server::bytes() const {
  const auto elements = storage_.owned_elements();
  const auto rows = static_cast<int64_t>(rows_of_a_worker()) * workers();
  const auto of = [&](DType type) { return elements * static_cast<int64_t>(size_of(type)); };
  return rows * of(storage_.gradient_type()) +
         (values_ == nullptr ? 0 : of(storage_.options().dtype));
}

Tensor Server::row(int worker, int64_t clock) const {
  const int64_t elements = storage_.owned_elements();
  const DType type = storage_.gradient_type();
  const auto rows = static_cast<int64_t>(rows_of_a_worker());
  // async uses only one row per worker, because a worker sends its next gradients only after the
  // update.
  const int64_t place = options_.kind == SyncKind::async ? 0 : clock % rows;
  const auto index = static_cast<size_t>(worker * rows + place);
  return tensor_at(rows_.get() + index * static_cast<size_t>(elements) * size_of(type), type, 1,
                   elements);
}

void Server::serve(int64_t steps, const UpdateShard& update, const UpdateOrder* recorded) {
  begin(steps);
  const int64_t all = steps * workers();
  while (std::ssize(order_) < all) {
    receive();
    while (const std::optional<Arrival> next = next_arrival(recorded)) take(*next, update);
  }
  finish_sends();
}

void Server::begin(int64_t steps) {
  steps_ = steps;
  version_ = 0;
  values_version_ = -1;
  next_part_ = workers();  // worker r begins with part r
  order_.clear();
  arrived_.clear();
  counts_.assign(rows_of_a_worker(), 0);
  pulled_.assign(static_cast<size_t>(workers()), 0);
  waiting_.clear();
  spans_.clear();
}

void Server::receive() {
  const Clock::time_point from = Clock::now();
  Arrival arrival;
  arrival.worker = pushes_.recv(bytes_of(arrival.push), kAnySource, {.tag = kHeaderTag}).source;
  const Tensor into = row(arrival.worker, arrival.push.clock);
  for (const Bucket& bucket : storage_.layout().buckets) {
    const Tensor part = into.col_range(bucket.owned_offset, bucket.shard_size());
    pushes_.recv(as_buffer(part), arrival.worker, {.tag = kRowTag});
  }
  arrived_.push_back(arrival);
  spans_.push_back({true, arrival.worker, from, Clock::now()});
}

std::optional<Server::Arrival> Server::next_arrival(const UpdateOrder* recorded) {
  auto next = arrived_.begin();
  if (recorded != nullptr && next != arrived_.end()) {
    if (order_.size() >= recorded->size()) refuse_record("it ends before the run does");
    const AppliedPush& wanted = (*recorded)[order_.size()];
    next = std::ranges::find_if(arrived_, [&](const Arrival& arrival) {
      return AppliedPush{arrival.worker, arrival.push.clock} == wanted;
    });
    if (next == arrived_.end()) check_recorded(wanted);
  }
  if (next == arrived_.end()) return std::nullopt;
  const Arrival arrival = *next;
  arrived_.erase(next);
  return arrival;
}

// Throws if the recorded order cannot be kept. A worker that has sent another clock, or waits for
// its answer, cannot send the recorded clock before updates that the record orders later.
void Server::check_recorded(const AppliedPush& recorded) const {
  const auto is_its = [&](const Arrival& arrival) { return arrival.worker == recorded.worker; };
  if (!std::ranges::any_of(arrived_, is_its) && !std::ranges::any_of(waiting_, is_its)) return;
  refuse_record(
      cat("worker ", recorded.worker, " does not reach its next clock, ", recorded.clock));
}

void Server::take(const Arrival& arrival, const UpdateShard& update) {
  order_.push_back({arrival.worker, arrival.push.clock});
  if (options_.kind == SyncKind::async) return update_alone(arrival, update);
  count_in(arrival, update);
}

void Server::update_alone(const Arrival& arrival, const UpdateShard& update) {
  finish_sends();
  const Clock::time_point from = Clock::now();
  int64_t& pulled = pulled_[static_cast<size_t>(arrival.worker)];
  const int64_t staleness = version_ - pulled;
  if (arrival.push.counts != 0) {
    update({.pieces = pieces_with(row(arrival.worker, 0)),
            .step = arrival.push.clock / workers(),
            .factor = arrival.push.factor,
            .rate_factor = options_.damping ? 1 / (1 + static_cast<double>(staleness)) : 1});
    ++version_;
  }
  if (arrival.push.pulls != 0) pulled = version_;
  spans_.push_back({false, arrival.worker, from, Clock::now()});
  answer(arrival, {.version = version_, .staleness = staleness, .next = next_part_++});
}

void Server::count_in(const Arrival& arrival, const UpdateShard& update) {
  const auto rows = static_cast<int64_t>(rows_of_a_worker());
  ++counts_[static_cast<size_t>(arrival.push.clock % rows)];
  waiting_.push_back(arrival);
  while (version_ < steps_ && counts_[static_cast<size_t>(version_ % rows)] == workers()) {
    update_clock(update);
  }
  answer_ranks_that_may_proceed();
}

void Server::update_clock(const UpdateShard& update) {
  finish_sends();
  const Clock::time_point from = Clock::now();
  add_up_in_order(workers(), [&](int into, int term) {
    add(row(into, version_), row(term, version_), row(into, version_));
  });
  update({.pieces = pieces_with(row(0, version_)), .step = version_});
  counts_[static_cast<size_t>(version_ % static_cast<int64_t>(rows_of_a_worker()))] = 0;
  spans_.push_back({false, static_cast<int>(order_.back().worker), from, Clock::now()});
  ++version_;
}

void Server::answer_ranks_that_may_proceed() {
  std::erase_if(waiting_, [&](const Arrival& arrival) {
    const int64_t next = arrival.push.clock + 1;
    const bool last = next == steps_;
    if (!last && version_ < next - options_.bound) return false;
    answer(arrival, {.version = version_, .staleness = last ? 0 : next - version_});
    return true;
  });
}

void Server::answer(const Arrival& arrival, const Answer& answer) {
  sent_.push_back(answer);
  sends_.push_back(
      answers_.send_async(as_const(bytes_of(sent_.back())), arrival.worker, {.tag = kHeaderTag}));
  if (arrival.push.pulls != 0) send_values(arrival.worker);
}

void Server::send_values(int worker) {
  const DType type = storage_.options().dtype;
  const std::span<float> masters = storage_.masters();
  std::byte* values = reinterpret_cast<std::byte*>(masters.data());
  if (type != DType::f32) {
    values = values_.get();
    if (std::exchange(values_version_, version_) != version_) {
      convert(tensor_at(masters.data(), DType::f32, 1, std::ssize(masters)),
              tensor_at(values, type, 1, std::ssize(masters)));
    }
  }
  for (const Bucket& bucket : storage_.layout().buckets) {
    const ConstBuffer part{values + static_cast<size_t>(bucket.owned_offset) * size_of(type),
                           static_cast<uint64_t>(bucket.shard_size()), type};
    sends_.push_back(answers_.send_async(part, worker, {.tag = kRowTag}));
  }
  if (worker == answers_.rank()) return;
  bytes_sent_ += static_cast<double>(masters.size() * size_of(type));
}

// Blocks until answers are sent. Must be called before the values change.
void Server::finish_sends() {
  for (Work& send : sends_) send.wait();
  sends_.clear();
  sent_.clear();
}

std::span<const OwnedPiece> Server::pieces_with(Tensor gradients) {
  for (OwnedPiece& piece : pieces_) {
    piece.gradient = gradients.col_range(piece.piece.owned_offset, piece.piece.count);
  }
  return pieces_;
}

}  // namespace tutti::training
