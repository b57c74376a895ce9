#include "collectives/one_sided/channel.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace tutti::one_sided {

namespace {

Buffer as_buffer(void* data, uint64_t bytes) { return {data, bytes, DType::u8}; }
ConstBuffer as_const_buffer(const void* data, uint64_t bytes) { return {data, bytes, DType::u8}; }

constexpr uint64_t padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

void append(std::vector<std::byte>& message, const Header& header, const void* payload,
            uint64_t bytes) {
  // Most requests are followed by one without data, such as a flush.
  if (message.empty()) message.reserve(2 * sizeof(Header) + padded(bytes));
  const auto* const head = reinterpret_cast<const std::byte*>(&header);
  message.insert(message.end(), head, head + sizeof(Header));
  if (bytes == 0) return;
  const auto* const data = static_cast<const std::byte*>(payload);
  message.insert(message.end(), data, data + bytes);
  message.resize(padded(message.size()));
}

// Keeps the memory of a message until it is sent or has failed.
void keep_until_sent(Work work, std::shared_ptr<const std::vector<std::byte>> memory) {
  work.on_end([memory = std::move(memory)](const Error*) {});
}

}  // namespace

Channel::Channel(Communicator ranks, int source, std::shared_ptr<OwnPart> part)
    : part_(std::move(part)),
      source_(source),
      request_(kMessage),
      added_(static_cast<size_t>(ranks.size())),
      ranks_(std::move(ranks)),
      abort_(&internal::abort_of(ranks_)) {}

// --- This rank's own requests ---

// Sends the pending message to `rank`. The caller holds added_mutex_, so that messages leave in the
// order of their requests.
std::optional<Work> Channel::dispatch(int rank) {
  Bytes& added = added_[static_cast<size_t>(rank)];
  if (added.empty()) return std::nullopt;
  auto message = std::make_shared<Bytes>(std::exchange(added, {}));
  Work work = ranks_.send_async(as_const_buffer(message->data(), message->size()), rank,
                                {.tag = kRequestTag});
  keep_until_sent(work, std::move(message));
  return work;
}

void Channel::add(int rank, const Header& header, const void* payload, uint64_t bytes) {
  std::optional<Work> full;
  {
    const std::scoped_lock lock(added_mutex_);
    Bytes& added = added_[static_cast<size_t>(rank)];
    if (added.size() + sizeof(Header) + padded(bytes) > kMessage) full = dispatch(rank);
    append(added, header, payload, bytes);
  }
  hold_back(std::move(full));
}

void Channel::send(int rank, const Header& header) {
  add(rank, header, nullptr, 0);
  send_added(rank);
}

void Channel::send_added(int rank) {
  std::optional<Work> work;
  {
    const std::scoped_lock lock(added_mutex_);
    work = dispatch(rank);
  }
  hold_back(std::move(work));
}

void Channel::send_added() {
  for (int rank = 0; rank < ranks_.size(); ++rank) send_added(rank);
}

void Channel::send_data(int rank, const Header& header, const void* data) {
  const std::scoped_lock lock(data_mutex_);  // the next data message must belong to this request
  send(rank, header);
  ranks_.send(as_const_buffer(data, header.bytes), rank, {.tag = kDataTag});
}

void Channel::ask(int rank, Header header, void* answer, uint64_t bytes) {
  header.reply_tag = next_tag();
  Work work = ranks_.recv_async(as_buffer(answer, bytes), rank, {.tag = header.reply_tag});
  send(rank, header);
  work.wait();
}

// Limits the messages in flight by waiting for the oldest one.
void Channel::hold_back(std::optional<Work> work) {
  if (!work) return;
  constexpr size_t kMostInFlight = 64;
  Work oldest;
  {
    const std::scoped_lock lock(sent_mutex_);
    sent_.push_back(std::move(*work));
    if (sent_.size() <= kMostInFlight) return;
    oldest = std::move(sent_.front());
    sent_.pop_front();
  }
  oldest.wait();
}

void Channel::wait_for_request(std::optional<Work>& handle, std::chrono::nanoseconds at_most) {
  if (!handle) handle = current();
  if (handle->wait_for(at_most)) handle.reset();
}

// --- Service ---

void Channel::serve() {
  const std::scoped_lock lock(service_mutex_);
  receive_message();
}

void Channel::stop() {
  const std::scoped_lock lock(service_mutex_);
  stopped_ = true;
}

void Channel::end(const std::string& why) { ranks_.abort(why); }

Work Channel::current() {
  const std::scoped_lock lock(service_mutex_);
  if (failure_) throw Error(*failure_);
  return current_;
}

// Makes `work` the service's call in flight and `then` the step that follows it. The caller holds
// service_mutex_.
void Channel::follow(Work work, Step then) {
  current_ = work;
  work.on_end([weak = weak_from_this(), then](const Error* error) {
    if (const std::shared_ptr<Channel> channel = weak.lock()) channel->proceed(error, then);
  });
}

// Runs the step `then` after the service's call has ended. A call that completes at once enters
// here from within follow(); the loop below then runs its step, so that steps do not nest.
void Channel::proceed(const Error* error, Step then) {
  const std::scoped_lock lock(service_mutex_);
  if (stopped_) return;
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
    fail(failed);
  }
  is_serving_ = false;
}

// Aborts the channel after a failure, because the other ranks wait for this rank's answers.
void Channel::fail(const Error& error) {
  failure_ = error;
  end(error.what());
}

void Channel::receive_message() {
  follow(ranks_.recv_async(
             as_buffer(request_.data(), request_.size()), source_,
             {.timeout = std::chrono::nanoseconds{0}, .tag = kRequestTag, .may_be_shorter = true}),
         &Channel::on_message);
}

void Channel::refuse_request(const std::string& how) {
  throw Error(ErrorCode::invalid_argument, cat("a request to a window ", how),
              {.where = "one-sided call", .cause = "the ranks run different programs"});
}

// Checks a received request. A window checks requests before it sends them, so a malformed request
// did not come from a window.
void Channel::check_request(const Header& header) const {
  if (header.kind == Kind::signal) {
    if (header.offset >= kSignals) refuse_request(cat("names signal ", header.offset));
    return;
  }
  if (header.kind > Kind::signal) return;
  const uint64_t all = part_->memory().size();
  if (header.offset > all || header.bytes > all - header.offset) {
    refuse_request(cat("is for ", header.bytes, " bytes at offset ", header.offset, " of ", all));
  }
  const bool carries = header.kind == Kind::put || header.kind == Kind::accumulate;
  const uint64_t rest = request_end_ - request_at_ - sizeof(Header);
  if (carries && padded(header.bytes) > rest) refuse_request("is truncated");
  if (header.kind == Kind::swap && header.bytes > sizeof(uint64_t)) {
    refuse_request(cat("swaps ", header.bytes, " bytes"));
  }
}

void Channel::on_message() {
  const MessageInfo info = current_.received();
  request_source_ = info.source;
  request_at_ = 0;
  request_end_ = info.count;
  serve_message();
}

// Serves the remaining requests of the message, then receives the next message.
void Channel::serve_message() {
  while (request_at_ < request_end_) {
    if (request_end_ - request_at_ < sizeof(Header)) refuse_request("is truncated");
    Header header;
    std::memcpy(&header, request_.data() + request_at_, sizeof(header));
    const std::byte* const payload = request_.data() + request_at_ + sizeof(header);
    check_request(header);
    const bool carries = header.kind == Kind::put || header.kind == Kind::accumulate;
    request_at_ += sizeof(header) + (carries ? padded(header.bytes) : 0);
    if (header.kind == Kind::put_data) {
      return follow(
          ranks_.recv_async(as_buffer(part_->memory().data() + header.offset, header.bytes),
                            request_source_, {.tag = kDataTag}),
          &Channel::serve_message);
    }
    serve_request(header, payload);
  }
  receive_message();
}

void Channel::serve_request(const Header& header, const std::byte* payload) {
  switch (header.kind) {
    case Kind::put:
      return part_->write(header.offset, payload, header.bytes);
    case Kind::get:
      return answer_with_memory(request_source_, header);
    case Kind::accumulate:
      return part_->combine(header.offset, payload, header.bytes, header.dtype, header.op);
    case Kind::swap: {
      const uint64_t found =
          part_->swap(header.offset, header.bytes, header.expected, header.desired);
      return answer(request_source_, header.reply_tag, &found, sizeof(found));
    }
    case Kind::signal:
      return part_->add_signal(header.offset, header.bytes);
    case Kind::flush:
      return answer(request_source_, header.reply_tag, nullptr, 0);
    case Kind::arrive:
      arrivals_.fetch_add(1, std::memory_order_release);
      return;
    case Kind::put_data:
      return;
  }
}

void Channel::answer(int to, int tag, const void* data, uint64_t bytes) {
  const auto* const from = static_cast<const std::byte*>(data);
  auto message = std::make_shared<Bytes>(from, from + bytes);
  Work work =
      ranks_.send_async(as_const_buffer(message->data(), message->size()), to, {.tag = tag});
  keep_until_sent(std::move(work), std::move(message));
}

void Channel::answer_with_memory(int to, const Header& header) {
  if (header.bytes <= kSegment) {
    Bytes copy(header.bytes);
    part_->read(header.offset, copy.data(), header.bytes);
    return answer(to, header.reply_tag, copy.data(), copy.size());
  }
  ranks_.send_async(as_const_buffer(part_->memory().data() + header.offset, header.bytes), to,
                    {.tag = header.reply_tag});
}

}  // namespace tutti::one_sided
