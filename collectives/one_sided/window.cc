#include "collectives/one_sided/window.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/copy_bytes.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/relax.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/one_sided/requests.h"
#include "collectives/one_sided/window_state.h"

namespace tutti {

using one_sided::Header;
using one_sided::Kind;

static_assert(Window::kSegment == one_sided::kSegment && Window::kSignals == one_sided::kSignals);

namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, what, {.where = "one-sided call", .remedy = remedy});
}

// These functions are separate from the checks so that the checks are inlined.
[[noreturn, gnu::noinline]] void refuse_dtype() {
  refuse("the buffer has no known dtype", "use a value of DType");
}
[[noreturn, gnu::noinline]] void refuse_count(uint64_t count) {
  refuse(cat(count, " elements exceed the address space"), "use a smaller count");
}
[[noreturn, gnu::noinline]] void refuse_freed() {
  refuse("the window was freed", "make no calls after free()");
}

inline uint64_t bytes_in(const ConstBuffer& buffer) {
  if (static_cast<size_t>(buffer.dtype) >= kAllDTypes.size()) [[unlikely]]
    refuse_dtype();
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(buffer.count, size_of(buffer.dtype), &bytes)) [[unlikely]] {
    refuse_count(buffer.count);
  }
  return bytes;
}

// Copies bytes. Copying a word inline is faster than a function call.
inline void copy(void* to, const void* from, uint64_t bytes) {
  constexpr uint64_t kShort = 8192;
  if (bytes == sizeof(uint64_t)) {
    std::memcpy(to, from, sizeof(uint64_t));
  } else if (bytes <= kShort) {
    copy_in_blocks(to, from, bytes);
  } else {
    copy_bytes(to, from, bytes);
  }
}

class Asleep {
 public:
  explicit Asleep(one_sided::OwnPart& part) : part_(part) { part_.begin_sleep(); }
  ~Asleep() { part_.end_sleep(); }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;

 private:
  one_sided::OwnPart& part_;
};

}  // namespace

Window::Window(Communicator world, std::span<std::byte> memory, Members members)
    : state_(std::make_shared<State>(world, memory, nullptr, members)) {}
Window::Window(std::shared_ptr<State> state) : state_(std::move(state)) {}
Window::~Window() = default;
Window::Window(Window&&) noexcept = default;
Window& Window::operator=(Window&&) noexcept = default;

Window Window::allocate(Communicator world, uint64_t bytes, Members members) {
  const Memory<std::byte> memory = world.allocate<std::byte>(bytes);
  return Window(std::make_shared<State>(world, std::span(memory.get(), bytes), memory, members));
}

inline Window::State& Window::state() const {
  if (state_ == nullptr) [[unlikely]]
    refuse_freed();
  return *state_;
}

int Window::rank() const { return state().rank(); }
int Window::size() const { return state().size(); }
uint64_t Window::bytes_of(int rank) const {
  state().check(rank, 0, 0);
  return state().bytes_of(rank);
}
std::span<std::byte> Window::memory() const { return state().own().memory(); }
bool Window::is_shared(int rank) const {
  state().check(rank, 0, 0);
  return rank == state().rank() || static_cast<bool>(state().link(rank).part);
}

std::span<std::byte> Window::mapped(int rank) const {
  State& s = state();
  s.check(rank, 0, 0);
  const one_sided::SharedPart& part = s.shared_part(rank);
  if (!part) return {};
  return {part.data(), s.bytes_of(rank)};
}

Window::Exclusion::Exclusion(Window& window, int rank) : part_(window.state().shared_part(rank)) {
  State& s = window.state();
  if (!part_) {
    throw Error(ErrorCode::unsupported, cat("the memory of rank ", rank, " is not shared"),
                {.where = "one-sided call", .remedy = "use memory from Window::allocate()"});
  }
  if (rank != s.rank()) s.check_access(rank);
  part_.lock([&s](int holder) { return s.has_died(holder); });
}
Window::Exclusion::~Exclusion() { part_.unlock(); }

void Window::put(ConstBuffer from, int rank, uint64_t offset) {
  State& s = state();
  const uint64_t bytes = bytes_in(from);
  s.check(rank, offset, bytes);
  const State::Link& to = s.link(rank);
  if (to.part) {
    const State::Inside inside(s, rank);
    return copy(to.part.data() + offset, from.data, bytes);
  }
  if (bytes == 0) return;
  if (rank == s.rank()) return s.own().write(offset, from.data, bytes);
  if (to.may_access()) {
    to.channel->check();
    to.remote->put(offset, {static_cast<const std::byte*>(from.data), bytes});
    return s.make_progress_at_times();
  }
  const bool is_short = bytes <= kSegment;
  const Header header{
      .kind = is_short ? Kind::put : Kind::put_data, .offset = offset, .bytes = bytes};
  to.send_in_order([&] {
    if (is_short) return to.channel->add(to.there, header, from.data, bytes);
    to.channel->send_data(to.there, header, from.data);
  });
}

void Window::get(Buffer into, int rank, uint64_t offset) {
  State& s = state();
  const uint64_t bytes = bytes_in(as_const(into));
  s.check(rank, offset, bytes);
  const State::Link& to = s.link(rank);
  if (to.part) {
    const State::Inside inside(s, rank);
    copy(into.data, to.part.data() + offset, bytes);
    return s.make_progress_at_times();
  }
  if (bytes == 0) return;
  if (rank == s.rank()) {
    s.make_progress();
    return s.own().read(offset, into.data, bytes);
  }
  if (to.may_access()) {
    to.channel->check();
    return to.remote->get(offset, {static_cast<std::byte*>(into.data), bytes});
  }
  to.ask({.kind = Kind::get, .offset = offset, .bytes = bytes}, into.data, bytes);
}

void Window::accumulate(ConstBuffer from, int rank, uint64_t offset, ReduceOp op) {
  State& s = state();
  const uint64_t bytes = bytes_in(from);
  s.check(rank, offset, bytes);
  const bool is_possible = op != ReduceOp::avg && op != ReduceOp::premul_sum &&
                           op != ReduceOp::user && supports(op, from.dtype);
  if (!is_possible) {
    refuse(
        cat("accumulate cannot combine ", name(from.dtype), " by ", name(op)),
        "use sum, prod, min, max, a bitwise operator of integers, or minloc and maxloc of pairs");
  }
  static_assert(
      std::ranges::all_of(kAllDTypes, [](DType type) { return kSegment % size_of(type) == 0; }));
  const auto* const data = static_cast<const std::byte*>(from.data);
  for (uint64_t done = 0; done < bytes; done += kSegment) {
    const Header header{.kind = Kind::accumulate,
                        .dtype = from.dtype,
                        .op = op,
                        .offset = offset + done,
                        .bytes = std::min(kSegment, bytes - done)};
    accumulate_segment(s, rank, header, data + done);
  }
}

// Combines at most kSegment bytes, atomically with respect to other accumulate calls.
void Window::accumulate_segment(State& s, int rank, const Header& header, const void* data) {
  const State::Link& to = s.link(rank);
  if (to.part) {
    const State::Inside inside(s, rank);
    const State::Combining combining(s, rank);
    return one_sided::combine(to.part.data() + header.offset, data, header.bytes, header.dtype,
                              header.op);
  }
  if (rank == s.rank()) {
    return s.own().combine(header.offset, data, header.bytes, header.dtype, header.op);
  }
  to.send_in_order([&] { to.channel->add(to.there, header, data, header.bytes); });
}

uint64_t Window::compare_and_swap(DType type, uint64_t expected, uint64_t desired, int rank,
                                  uint64_t offset) {
  State& s = state();
  if (type != DType::i32 && type != DType::u32 && type != DType::i64 && type != DType::u64) {
    refuse(cat("compare_and_swap does not support ", name(type)), "use i32, u32, i64 or u64");
  }
  const uint64_t bytes = size_of(type);
  s.check(rank, offset, bytes);
  const State::Link& to = s.link(rank);
  if (to.part) {
    // The word may implement a lock, whose holder may wait for this rank.
    s.make_progress_at_times();
    const State::Inside inside(s, rank);
    const State::Combining combining(s, rank);
    return one_sided::swap(to.part.data() + offset, bytes, expected, desired);
  }
  if (rank == s.rank()) {
    s.make_progress();
    return s.own().swap(offset, bytes, expected, desired);
  }
  uint64_t found = 0;
  to.ask({.kind = Kind::swap,
          .offset = offset,
          .bytes = bytes,
          .expected = expected,
          .desired = desired},
         &found, sizeof(found));
  return found;
}

namespace {

void check_slot(int slot) {
  if (slot >= 0 && slot < Window::kSignals) return;
  refuse(cat("there is no signal ", slot), cat("use a signal from 0 to ", Window::kSignals - 1));
}

}  // namespace

void Window::signal(int rank, int slot, uint64_t count) {
  State& s = state();
  check_slot(slot);
  s.check(rank, 0, 0);
  const auto at = static_cast<uint64_t>(slot);
  if (rank == s.rank()) return s.own().add_signal(at, count);
  const State::Link& to = s.link(rank);
  Header header{.kind = Kind::signal, .offset = at, .bytes = count};
  if (to.part) {
    const State::Inside inside(s, rank);
    one_sided::PartControl& control = to.part.control();
    control.signals[at].fetch_add(count, std::memory_order_seq_cst);
    if (control.sleepers.load(std::memory_order_seq_cst) == 0) return;
    header.bytes = 0;  // only wakes the waiting thread
  }
  to.send_in_order([&] { to.channel->send(to.there, header); });
}

void Window::wait_signal(int slot, uint64_t count) {
  State& s = state();
  check_slot(slot);
  const auto at = static_cast<uint64_t>(slot);
  constexpr int kSpins = 1000;
  for (int spin = 0; spin < kSpins; ++spin) {
    if (s.own().take_signal(at, count)) return;
    relax();
  }
  s.send_added();
  const std::chrono::nanoseconds timeout = settings().get_duration("TUTTI_TIMEOUT");
  const Deadline deadline = timeout.count() == 0 ? Deadline::never() : Deadline::after(timeout);
  const Asleep asleep(s.own());
  std::vector<std::optional<Work>> handles;
  while (!s.own().take_signal(at, count)) {
    s.wait_for_requests(handles);
    if (!deadline.passed()) continue;
    throw Error(ErrorCode::timeout, cat("signal ", slot, " did not arrive"),
                {.where = cat("rank ", s.rank(), " of a window"),
                 .cause = "the rank that should send it is late",
                 .remedy = "check the other ranks, or raise TUTTI_TIMEOUT"});
  }
}

void Window::flush(int rank) {
  State& s = state();
  s.check(rank, 0, 0);
  if (rank == s.rank()) return;
  const State::Link& to = s.link(rank);
  if (to.part) {
    s.check_access(rank);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return s.make_progress_at_times();
  }
  if (to.may_access()) {
    to.channel->check();
    to.remote->flush();
    return s.make_progress_at_times();
  }
  to.ask({.kind = Kind::flush}, nullptr, 0);
}

void Window::flush_all() {
  State& s = state();
  for (int rank = 0; rank < s.size(); ++rank) {
    try {
      if (!s.is_gone(rank)) flush(rank);
    } catch (const Error&) {
      if (!s.continues()) throw;
    }
  }
}

void Window::fence() {
  flush_all();
  state().meet();
}

void Window::abort(const std::string& reason) { state().abort(reason); }

void Window::free() {
  fence();
  state_->set_freed();
  state_.reset();
}

}  // namespace tutti
