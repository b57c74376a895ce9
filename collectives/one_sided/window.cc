#include "collectives/one_sided/window.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/reduce.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/one_sided/requests.h"

namespace tutti {

using one_sided::Header;
using one_sided::kDataTag;
using one_sided::Kind;
using one_sided::kRequestTag;

namespace {

using Bytes = std::vector<std::byte>;

Buffer as_buffer(void* data, uint64_t bytes) { return {data, bytes, DType::u8}; }
ConstBuffer as_const_buffer(const void* data, uint64_t bytes) { return {data, bytes, DType::u8}; }

uint64_t bytes_in(const ConstBuffer& buffer) { return buffer.count * size_of(buffer.dtype); }

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, what, {.where = "one-sided call", .remedy = remedy});
}

// Frees the memory of a message once it is sent, or has failed.
void keep_until_sent(Work work, std::shared_ptr<const Bytes> memory) {
  work.on_end([memory = std::move(memory)](const Error*) {});
}

}  // namespace

class Window::State : public std::enable_shared_from_this<State> {
 public:
  State(Communicator& world, std::span<std::byte> memory)
      : memory_(memory),
        request_(sizeof(Header) + kSegment),
        sizes_(static_cast<size_t>(world.size())),
        requests_(world.duplicate()),
        replies_(world.duplicate()) {
    const uint64_t own = memory.size();
    replies_.all_gather({&own, 1, DType::u64}, {sizes_.data(), sizes_.size(), DType::u64});
  }

  Communicator& replies() { return replies_; }
  int rank() const { return requests_.rank(); }
  int size() const { return requests_.size(); }
  uint64_t bytes_of(int rank) const { return sizes_.at(static_cast<size_t>(rank)); }

  void check(int rank, uint64_t offset, uint64_t bytes) const {
    if (rank < 0 || rank >= size()) {
      refuse(cat("there is no rank ", rank), cat("give one from 0 to ", size() - 1));
    }
    const uint64_t all = bytes_of(rank);
    if (offset <= all && bytes <= all - offset) return;
    refuse(cat(bytes, " bytes at offset ", offset, " are outside the window of rank ", rank,
               ", of ", all, " bytes"),
           "offsets are in bytes");
  }

  // --- This rank's own requests ---

  void send(int rank, const Header& header, const void* payload = nullptr, uint64_t bytes = 0) {
    auto message = std::make_shared<Bytes>(sizeof(Header) + bytes);
    std::memcpy(message->data(), &header, sizeof(Header));
    if (bytes > 0) std::memcpy(message->data() + sizeof(Header), payload, bytes);
    Work work = requests_.send_async(as_const_buffer(message->data(), message->size()), rank,
                                     {.tag = kRequestTag});
    keep_until_sent(work, std::move(message));
    hold_back(std::move(work));
  }

  void put_data(int rank, const Header& header, ConstBuffer from) {
    const std::scoped_lock lock(data_mutex_);  // the next data message is this request's
    send(rank, header);
    requests_.send(as_const_buffer(from.data, header.bytes), rank, {.tag = kDataTag});
  }

  // Sends a request and waits for its answer.
  void ask(int rank, Header header, void* answer, uint64_t bytes) {
    header.reply_tag = next_tag();
    Work work = replies_.recv_async(as_buffer(answer, bytes), rank, {.tag = header.reply_tag});
    send(rank, header);
    work.wait();
  }

  // --- Of this rank's memory ---

  void write(uint64_t offset, const void* from, uint64_t bytes) {
    const std::scoped_lock lock(memory_mutex_);
    std::memcpy(memory_.data() + offset, from, bytes);
  }
  void read(uint64_t offset, void* into, uint64_t bytes) {
    const std::scoped_lock lock(memory_mutex_);
    std::memcpy(into, memory_.data() + offset, bytes);
  }
  void combine(uint64_t offset, const void* from, uint64_t bytes, DType dtype, ReduceOp op) {
    const std::scoped_lock lock(memory_mutex_);
    std::byte* const at = memory_.data() + offset;
    reduce_kernel(dtype, op)(at, at, from, bytes / size_of(dtype), {});
  }
  uint64_t swap(uint64_t offset, uint64_t bytes, uint64_t expected, uint64_t desired) {
    const std::scoped_lock lock(memory_mutex_);
    uint64_t found = 0;
    std::memcpy(&found, memory_.data() + offset, bytes);
    if (std::memcmp(&found, &expected, bytes) == 0) {
      std::memcpy(memory_.data() + offset, &desired, bytes);
    }
    return found;
  }
  void add_signal(uint64_t slot, uint64_t count) {
    const std::scoped_lock lock(memory_mutex_);
    signals_[slot] += count;
  }
  bool take_signal(size_t slot, uint64_t count) {
    const std::scoped_lock lock(memory_mutex_);
    if (signals_[slot] < count) return false;
    signals_[slot] -= count;
    return true;
  }

  // --- Service ---

  void serve() {
    const std::scoped_lock lock(service_mutex_);
    receive_request();
  }

  // The service's call in flight. Throws why the window has failed.
  Work current() {
    const std::scoped_lock lock(service_mutex_);
    if (failure_) throw Error(*failure_);
    return current_;
  }

 private:
  using Step = void (State::*)();

  // Makes `work` the service's one call in flight, and `then` what follows it. Under
  // service_mutex_.
  void follow(Work work, Step then) {
    current_ = work;
    work.on_end([weak = weak_from_this(), then](const Error* error) {
      if (const std::shared_ptr<State> state = weak.lock()) state->go_on(error, then);
    });
  }

  // A call that is over already comes here from within follow(): then the loop below takes its
  // step, so that steps do not nest.
  void go_on(const Error* error, Step then) {
    const std::scoped_lock lock(service_mutex_);
    if (error != nullptr) {
      failure_ = *error;
      return;
    }
    next_ = then;
    if (is_serving_) return;
    is_serving_ = true;
    try {
      while (next_ != nullptr) (this->*std::exchange(next_, nullptr))();
    } catch (const Error& failed) {
      failure_ = failed;
    }
    is_serving_ = false;
  }

  void receive_request() {
    follow(
        requests_.recv_async(
            as_buffer(request_.data(), request_.size()), kAnySource,
            {.timeout = std::chrono::nanoseconds{0}, .tag = kRequestTag, .may_be_shorter = true}),
        &State::on_request);
  }

  void on_request() {
    const MessageInfo info = current_.received();
    Header header;
    std::memcpy(&header, request_.data(), sizeof(header));
    const std::byte* const payload = request_.data() + sizeof(header);
    const uint64_t sent = info.count - sizeof(header);
    const bool carries = header.kind == Kind::put || header.kind == Kind::accumulate;
    const bool has_range = header.kind != Kind::signal && header.kind != Kind::flush;
    if (has_range) check(rank(), header.offset, header.bytes);
    if (carries && sent != header.bytes) refuse("a request was cut off", "report it");
    switch (header.kind) {
      case Kind::put:
        write(header.offset, payload, header.bytes);
        break;
      case Kind::put_data:
        return follow(requests_.recv_async(as_buffer(memory_.data() + header.offset, header.bytes),
                                           info.source, {.tag = kDataTag}),
                      &State::receive_request);
      case Kind::get:
        answer_with_memory(info.source, header);
        break;
      case Kind::accumulate:
        combine(header.offset, payload, header.bytes, header.dtype, header.op);
        break;
      case Kind::swap: {
        const uint64_t found = swap(header.offset, header.bytes, header.expected, header.desired);
        answer(info.source, header.reply_tag, &found, sizeof(found));
        break;
      }
      case Kind::signal:
        if (header.offset < kSignals) add_signal(header.offset, header.bytes);
        break;
      case Kind::flush:
        answer(info.source, header.reply_tag, nullptr, 0);
        break;
    }
    receive_request();
  }

  void answer(int to, int tag, const void* data, uint64_t bytes) {
    const auto* const from = static_cast<const std::byte*>(data);
    auto message = std::make_shared<Bytes>(from, from + bytes);
    Work work =
        replies_.send_async(as_const_buffer(message->data(), message->size()), to, {.tag = tag});
    keep_until_sent(std::move(work), std::move(message));
  }

  void answer_with_memory(int to, const Header& header) {
    if (header.bytes <= kSegment) {
      Bytes copy(header.bytes);
      read(header.offset, copy.data(), header.bytes);
      return answer(to, header.reply_tag, copy.data(), copy.size());
    }
    replies_.send_async(as_const_buffer(memory_.data() + header.offset, header.bytes), to,
                        {.tag = header.reply_tag});
  }

  // Bounds the requests in flight: waits for the one that many before.
  void hold_back(Work work) {
    constexpr size_t kMostInFlight = 64;
    Work oldest;
    {
      const std::scoped_lock lock(sent_mutex_);
      sent_.push_back(std::move(work));
      if (sent_.size() <= kMostInFlight) return;
      oldest = std::move(sent_.front());
      sent_.pop_front();
    }
    oldest.wait();
  }

  int next_tag() { return static_cast<int>(tags_.fetch_add(1) % (kLargestTag + 1U)); }

  // The communicators are destroyed first: messages in flight use what stands before them.
  const std::span<std::byte> memory_;
  std::array<uint64_t, kSignals> signals_ = {};
  Bytes request_;
  std::mutex sent_mutex_;
  std::deque<Work> sent_;  // this rank's latest requests
  std::vector<uint64_t> sizes_;
  std::atomic<uint32_t> tags_{0};
  std::mutex memory_mutex_;  // of the memory and the signals
  std::mutex data_mutex_;
  std::recursive_mutex service_mutex_;  // of what follows
  Step next_ = nullptr;
  bool is_serving_ = false;
  Work current_;
  std::optional<Error> failure_;
  Communicator requests_;
  Communicator replies_;
};

Window::Window(Communicator world, std::span<std::byte> memory)
    : state_(std::make_shared<State>(world, memory)) {
  state_->serve();
  state_->replies().barrier();
}
Window::~Window() = default;
Window::Window(Window&&) noexcept = default;
Window& Window::operator=(Window&&) noexcept = default;

Window::State& Window::state() const {
  if (state_ == nullptr) refuse("the window has ended", "call nothing after free()");
  return *state_;
}

int Window::rank() const { return state().rank(); }
int Window::size() const { return state().size(); }
uint64_t Window::bytes_of(int rank) const {
  state().check(rank, 0, 0);
  return state().bytes_of(rank);
}

void Window::put(ConstBuffer from, int rank, uint64_t offset) {
  State& s = state();
  const uint64_t bytes = bytes_in(from);
  s.check(rank, offset, bytes);
  if (bytes == 0) return;
  if (rank == s.rank()) return s.write(offset, from.data, bytes);
  const bool is_short = bytes <= kSegment;
  const Header header{
      .kind = is_short ? Kind::put : Kind::put_data, .offset = offset, .bytes = bytes};
  if (is_short) return s.send(rank, header, from.data, bytes);
  s.put_data(rank, header, from);
}

void Window::get(Buffer into, int rank, uint64_t offset) {
  State& s = state();
  const uint64_t bytes = bytes_in(as_const(into));
  s.check(rank, offset, bytes);
  if (bytes == 0) return;
  if (rank == s.rank()) {
    s.current().poll();  // others are served, also by an owner who reads again and again
    return s.read(offset, into.data, bytes);
  }
  s.ask(rank, {.kind = Kind::get, .offset = offset, .bytes = bytes}, into.data, bytes);
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
        "take sum, prod, min, max, a bitwise operator of integers, or minloc and maxloc of pairs");
  }
  const uint64_t each = kSegment / size_of(from.dtype) * size_of(from.dtype);
  for (uint64_t done = 0; done < bytes; done += each) {
    const uint64_t part = std::min(each, bytes - done);
    const void* const at = static_cast<const std::byte*>(from.data) + done;
    if (rank == s.rank()) {
      s.combine(offset + done, at, part, from.dtype, op);
      continue;
    }
    const Header header{.kind = Kind::accumulate,
                        .dtype = from.dtype,
                        .op = op,
                        .offset = offset + done,
                        .bytes = part};
    s.send(rank, header, at, part);
  }
}

uint64_t Window::compare_and_swap(DType type, uint64_t expected, uint64_t desired, int rank,
                                  uint64_t offset) {
  State& s = state();
  if (type != DType::i32 && type != DType::u32 && type != DType::i64 && type != DType::u64) {
    refuse(cat("compare_and_swap has no ", name(type)), "take i32, u32, i64 or u64");
  }
  const uint64_t bytes = size_of(type);
  s.check(rank, offset, bytes);
  if (rank == s.rank()) {
    s.current().poll();  // as in get()
    return s.swap(offset, bytes, expected, desired);
  }
  uint64_t found = 0;
  s.ask(rank,
        {.kind = Kind::swap,
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
  refuse(cat("there is no signal ", slot), cat("give one from 0 to ", Window::kSignals - 1));
}

}  // namespace

void Window::signal(int rank, int slot, uint64_t count) {
  State& s = state();
  check_slot(slot);
  s.check(rank, 0, 0);
  const auto at = static_cast<uint64_t>(slot);
  if (rank == s.rank()) return s.add_signal(at, count);
  s.send(rank, {.kind = Kind::signal, .offset = at, .bytes = count});
}

void Window::wait_signal(int slot, uint64_t count) {
  State& s = state();
  check_slot(slot);
  const std::chrono::nanoseconds timeout = settings().get_duration("TUTTI_TIMEOUT");
  const Deadline deadline = timeout.count() == 0 ? Deadline::never() : Deadline::after(timeout);
  constexpr std::chrono::milliseconds kLookAgain{50};
  // One handle for as long as nothing is served: it finds out, and says, which ranks are missing.
  Work waited = s.current();
  while (!s.take_signal(static_cast<size_t>(slot), count)) {
    if (waited.wait_for(kLookAgain)) waited = s.current();
    if (deadline.passed()) {
      throw Error(ErrorCode::timeout, cat("no signal ", slot, " has come"),
                  {.where = cat("rank ", s.rank(), " of a window"),
                   .cause = "a rank that was to send it is late",
                   .remedy = "look at the other ranks, or raise TUTTI_TIMEOUT"});
    }
  }
}

void Window::flush(int rank) {
  State& s = state();
  s.check(rank, 0, 0);
  if (rank != s.rank()) s.ask(rank, {.kind = Kind::flush}, nullptr, 0);
}

void Window::flush_all() {
  for (int rank = 0; rank < size(); ++rank) flush(rank);
}

void Window::fence() {
  flush_all();
  state().replies().barrier();
}

void Window::free() {
  fence();
  state_.reset();
}

}  // namespace tutti
