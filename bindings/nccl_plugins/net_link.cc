#include "bindings/nccl_plugins/net_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/deadline.h"
#include "base/text.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::nccl {

namespace {

// Minimum and maximum size of a slice. The transfer of the smallest slice takes much longer than
// its header and system call. The largest slice is so small that idle streams can take a share of a
// message.
constexpr uint64_t kLeastSlice = 64 << 10;
constexpr uint64_t kMostSlice = 1 << 20;
// Nanoseconds between checks that the peer has confirmed sent bytes. The interval is so long that
// the checks cost nothing.
constexpr int64_t kBetweenLooks = 1'000'000'000;
// Limit on the number of slices that one stream moves per turn, so that all streams get their turn.
constexpr int kMovesAtOnce = 16;

void set_option(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof(value));
}

// Enables keepalive, which detects within half a minute that a peer's host is gone, also at an end
// that only receives. A few probes of an idle stream may be lost while other streams fill the
// network.
void enable_keepalive(int socket) {
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

std::string name_of_peer(const Streams& streams) {
  try {
    return bootstrap::peer_address(streams.at(0).get()).text();
  } catch (const Error&) {
    return "a peer that has already gone";
  }
}

template <typename Stream>
std::vector<Stream> make_streams(Streams sockets) {
  std::vector<Stream> streams;
  for (Fd& socket : sockets) {
    enable_keepalive(socket.get());
    streams.emplace_back(std::move(socket));
  }
  return streams;
}

}  // namespace

// --- both ends ---

std::optional<uint64_t> Link::test(Transfer& transfer) {
  if (!transfer.is_done) progress();
  if (!transfer.is_done) {
    throw_failure();
    return std::nullopt;
  }
  const uint64_t bytes = transfer.bytes;
  transfer = {};
  return bytes;
}

Transfer* Link::free_transfer() {
  const auto free = std::ranges::find(transfers_, false, &Transfer::used);
  if (free == transfers_.end()) return nullptr;
  *free = {.link = this, .used = true};
  return &*free;
}

void Link::fail(ErrorCode code, const std::string& what, const ErrorDetail& detail) {
  if (!failure_) failure_.emplace(code, what, detail);
}

void Link::fail_of_end(const std::string& peer, int error) {
  fail(ErrorCode::connection_lost,
       cat("the connection with ", peer, " broke: ", bootstrap::explain_close(error)),
       {.cause = "that process has ended, or its host or the network is down",
        .remedy = "check that rank's last output"});
}

void Link::throw_failure() const {
  if (failure_) throw Error(*failure_);
}

// --- the sender ---

Sender::Sender(Streams streams)
    : peer_(name_of_peer(streams)),
      streams_(make_streams<SendStream>(std::move(streams))),
      on_stream_(streams_.size(), nullptr) {}

// Reads all posts first, because closing a socket with unread input discards unsent output.
Sender::~Sender() { read_posts(); }

Transfer* Sender::offer(const void* memory, uint64_t bytes, int tag) {
  progress();
  throw_failure();
  const auto post = std::ranges::find(posts_, tag, &Post::tag);
  if (post == posts_.end()) return nullptr;
  if (bytes > post->bytes) {
    fail(ErrorCode::mismatch,
         cat("a message of ", bytes, " bytes for ", peer_, " (tag ", tag,
             ") is longer than the receive of ", post->bytes, " bytes that waits for it"),
         {.cause = "the ranks called with different sizes",
          .remedy = "give all ranks the same count and type"});
    throw_failure();
  }
  Transfer* const transfer = free_transfer();
  if (transfer == nullptr) return nullptr;
  transfer->number = post->number;
  transfer->memory = static_cast<std::byte*>(const_cast<void*>(memory));
  transfer->bytes = bytes;
  transfer->is_known = true;
  posts_.erase(post);
  waiting_.push_back(transfer);
  progress();
  return transfer;
}

void Sender::progress() {
  read_posts();
  for (SendStream& stream : streams_) advance(stream);
  look_for_outage();
}

void Sender::read_posts() {
  while (!failed()) {
    auto* const into = reinterpret_cast<std::byte*>(&post_);
    const ssize_t got =
        ::recv(streams_[0].fd(), into + post_bytes_, sizeof(Post) - post_bytes_, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return fail_of_end(peer_, got == 0 ? 0 : errno);
    post_bytes_ += static_cast<size_t>(got);
    if (post_bytes_ < sizeof(Post)) continue;
    post_bytes_ = 0;
    take_post(post_);
  }
}

void Sender::take_post(const Post& post) {
  if (post.magic == Post().magic) {
    posts_.push_back(post);
  } else {
    fail(ErrorCode::internal, cat(peer_, " sent a malformed post of a receive"));
  }
}

bool Sender::begin_slice(SendStream& stream) {
  if (waiting_.empty()) return false;
  Transfer& transfer = *waiting_.front();
  const uint64_t share = (transfer.bytes + streams_.size() - 1) / streams_.size();
  const Slice slice{.number = transfer.number,
                    .total = transfer.bytes,
                    .offset = transfer.begun,
                    .bytes = std::min(std::clamp(share, kLeastSlice, kMostSlice),
                                      transfer.bytes - transfer.begun)};
  stream.begin(slice, transfer.memory + transfer.begun);
  transfer.begun += slice.bytes;
  if (transfer.begun == transfer.bytes) waiting_.pop_front();
  return true;
}

void Sender::advance(SendStream& stream) {
  Transfer*& carried = on_stream_[static_cast<size_t>(&stream - streams_.data())];
  for (int i = 0; i < kMovesAtOnce && !failed(); ++i) {
    if (stream.idle()) {
      Transfer* const next = waiting_.empty() ? nullptr : waiting_.front();
      if (!begin_slice(stream)) return;
      carried = next;
      ++carried->in_flight;
    }
    int error = 0;
    const Moved moved = stream.advance(error);
    if (moved == Moved::end) return fail_of_end(peer_, error);
    if (moved == Moved::nothing) return;
    if (!stream.idle()) continue;
    --carried->in_flight;
    carried->is_done = carried->in_flight == 0 && carried->begun == carried->bytes;
  }
}

void Sender::look_for_outage() {
  const int64_t now = now_ns();
  if (failed() || now < next_look_ns_) return;
  next_look_ns_ = now + kBetweenLooks;
  for (SendStream& stream : streams_) {
    const std::string wrong = stream.outage(now);
    if (!wrong.empty()) return fail(ErrorCode::connection_lost, wrong);
  }
}

// --- the receiver ---

Receiver::Receiver(Streams streams)
    : peer_(name_of_peer(streams)), streams_(make_streams<ReceiveStream>(std::move(streams))) {}

Transfer* Receiver::post(void* memory, uint64_t bytes, int tag) {
  throw_failure();
  Transfer* const transfer = free_transfer();
  if (transfer == nullptr) return nullptr;
  transfer->number = next_number_++;
  transfer->memory = static_cast<std::byte*>(memory);
  transfer->bytes = bytes;
  const Post post{.tag = tag, .number = transfer->number, .bytes = bytes};
  const auto* const begin = reinterpret_cast<const std::byte*>(&post);
  unsent_.insert(unsent_.end(), begin, begin + sizeof(post));
  send_posts();
  return transfer;
}

void Receiver::progress() {
  send_posts();
  for (ReceiveStream& stream : streams_) advance(stream);
  look_for_end();
}

// Sends queued posts. A sender that has gone is not a failure here, because earlier bytes may still
// be in transit.
void Receiver::send_posts() {
  while (!unsent_.empty()) {
    const ssize_t sent =
        ::send(streams_[0].fd(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent <= 0) return unsent_.clear();
    unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
  }
}

void Receiver::advance(ReceiveStream& stream) {
  for (int i = 0; i < kMovesAtOnce && !failed() && !stream.ended(); ++i) {
    int error = 0;
    const Moved moved = stream.advance(error);
    if (moved == Moved::nothing) return;
    if (moved == Moved::end) {
      stream.set_ended();
      if (error != 0) last_error_ = error;
      // Sockets of an exited process report only these errors, each after all earlier bytes have
      // been read. Other errors concern this stream only, and may never reach the sender.
      const bool may_have_left = error == 0 || error == ECONNRESET || error == EPIPE;
      if (!stream.between_slices() || !may_have_left) fail_of_end(peer_, error);
      return;
    }
    if (stream.arrived() != nullptr && !place(stream)) return;
    if (stream.complete()) take(stream.take());
  }
}

bool Receiver::place(ReceiveStream& stream) {
  const Slice& slice = *stream.arrived();
  Transfer* const transfer = slice.magic == Slice().magic ? find(slice.number) : nullptr;
  const bool fits = transfer != nullptr && slice.total <= transfer->bytes &&
                    (!transfer->is_known || slice.total == transfer->bytes) &&
                    slice.offset <= slice.total && slice.bytes <= slice.total - slice.offset;
  if (!fits) {
    fail(ErrorCode::internal, cat(peer_, " sent a slice for which no receive is posted"));
    return false;
  }
  transfer->bytes = slice.total;
  transfer->is_known = true;
  stream.place(transfer->memory + slice.offset);
  return true;
}

void Receiver::take(const Slice& slice) {
  Transfer* const transfer = find(slice.number);
  transfer->arrived += slice.bytes;
  transfer->is_done = transfer->arrived == transfer->bytes;
}

// Fails the link once all streams have ended, because the sender has left; everything that it sent
// has arrived by then.
void Receiver::look_for_end() {
  if (std::ranges::all_of(streams_, &ReceiveStream::ended)) fail_of_end(peer_, last_error_);
}

Transfer* Receiver::find(uint64_t number) {
  const auto found = std::ranges::find_if(transfers_, [&](const Transfer& transfer) {
    return transfer.used && !transfer.is_done && transfer.number == number;
  });
  return found == transfers_.end() ? nullptr : &*found;
}

}  // namespace tutti::nccl
