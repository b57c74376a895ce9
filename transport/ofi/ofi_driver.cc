#include "transport/ofi/ofi_driver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "transport/ofi/library.h"

namespace tutti::ofi {

using fabric::Arrival;
using fabric::Header;
using fabric::Kind;
using fabric::RendezvousState;
using fabric::Send;

namespace {

constexpr size_t kEagerBytes = 16 << 10;  // payloads up to this size are copied
constexpr size_t kBufferBytes = sizeof(Header) + kEagerBytes;
constexpr size_t kBuffersPerBlock = 64;
constexpr size_t kPosted = 64;  // number of posted receive buffers
constexpr size_t kCompletionsAtATime = 16;
constexpr size_t kLongestName = 512;

}  // namespace

OfiDriver::OfiDriver(const Near& near, const std::string& provider, fabric::Rma rma)
    : fabric_(near, provider),
      local_(fabric_.wants(FI_MR_LOCAL)),
      accesses_(rma == fabric::Rma::on || (rma == fabric::Rma::automatic && !by_sockets())) {
  const size_t most = std::max(kBufferBytes, fabric::kMessageBytes);
  if (fabric_.info->ep_attr->max_msg_size < most) {
    throw Error(ErrorCode::unsupported,
                cat("libfabric's provider ", fabric_.provider(), " supports messages of at most ",
                    fabric_.info->ep_attr->max_msg_size, " bytes, but ", most, " are required"),
                {.remedy = "name another provider in FI_PROVIDER"});
  }
  make_buffers();
  if (local_ && !block_registrations_.front()) {
    throw Error(ErrorCode::system, "libfabric cannot register memory for the network card",
                {.cause = "the limit of locked memory is too small",
                 .remedy = "raise the limit (ulimit -l unlimited, or memlock in limits.conf)"});
  }
  for (size_t i = 0; i < kPosted; ++i) post_receive(take_buffer());
}

OfiDriver::~OfiDriver() { close_endpoint(); }

bool OfiDriver::by_sockets() const {
  const std::string provider = fabric_.provider();
  return provider == "net" || provider == "tcp" || provider == "tcp;ofi_rxm";
}

// Returns the address. It names the provider, because both ranks must use the same one.
std::string OfiDriver::address() const {
  std::string name(kLongestName, '\0');
  size_t bytes = name.size();
  require_ok(::fi_getname(&fabric_.endpoint->fid, name.data(), &bytes), "fi_getname");
  return fabric_.provider() + '\0' + name.substr(0, bytes);
}

fi_addr_t OfiDriver::address_of(int rank) {
  const auto known = peers_.find(rank);
  if (known != peers_.end()) return known->second;
  const std::string_view address = ranks_.address_of(rank);
  const std::string own = fabric_.provider() + '\0';
  fi_addr_t peer = FI_ADDR_NOTAVAIL;
  if (address.empty()) {
    events().broke(rank, "that rank is gone");
  } else if (!address.starts_with(own)) {
    events().broke(rank, cat("that rank uses the provider ", address.data(), ", this rank uses ",
                             fabric_.provider(), "; set FI_PROVIDER to a common one"));
  } else {
    const std::string name(address.substr(own.size()));
    if (::fi_av_insert(fabric_.addresses.get(), name.data(), 1, &peer, 0, nullptr) != 1) {
      peer = FI_ADDR_NOTAVAIL;
      events().broke(rank, "libfabric rejects its address (fi_av_insert)");
    }
  }
  peers_[rank] = peer;
  return peer;
}

// ---- memory

// Registers memory. Returns an empty registration if the system refuses.
Registration OfiDriver::registered(std::span<const std::byte> memory, uint64_t access) {
  return Registration(fabric_, memory, access, next_key_++);
}

void OfiDriver::will_use(std::span<std::byte> memory) {
  Registration registration = registered(memory, FI_READ | FI_WRITE | FI_REMOTE_READ);
  if (registration) kept_.emplace(memory.data(), std::move(registration));
}

const Registration* OfiDriver::kept(const std::byte* memory) const {
  const auto found = kept_.find(memory);
  return found != kept_.end() ? &found->second : nullptr;
}

// Returns the address that peers use for the first byte of a registration that begins at `memory`:
// the virtual address or, if the provider addresses memory by offsets, 0.
uint64_t OfiDriver::address_in(const std::byte* memory) const {
  return fabric_.wants(FI_MR_VIRT_ADDR) ? reinterpret_cast<uint64_t>(memory) : 0;
}

void OfiDriver::make_buffers() {
  const size_t bytes = kBuffersPerBlock * kBufferBytes;
  blocks_.push_back(std::make_unique<std::byte[]>(bytes));
  std::byte* const memory = blocks_.back().get();
  void* descriptor = nullptr;
  if (local_) {
    block_registrations_.push_back(registered({memory, bytes}, FI_SEND | FI_RECV));
    descriptor = block_registrations_.back().descriptor();
  }
  for (size_t i = 0; i < kBuffersPerBlock; ++i) {
    Buffer& buffer = buffers_.emplace_back();
    buffer.memory = memory + i * kBufferBytes;
    buffer.descriptor = descriptor;
    free_.push_back(&buffer);
  }
}

OfiDriver::Buffer& OfiDriver::take_buffer() {
  if (free_.empty()) make_buffers();
  Buffer& buffer = *free_.back();
  free_.pop_back();
  return buffer;
}

// ---- operations

ssize_t OfiDriver::try_to_begin(Operation& operation) {
  fid_ep* const endpoint = fabric_.endpoint.get();
  void* const context = &operation.context;
  if (operation.type == Operation::Type::read) {
    auto& read = static_cast<Read&>(operation);
    return ::fi_read(endpoint, read.memory, read.bytes, read.descriptor, address_of(read.rank),
                     read.from.address, read.from.key, context);
  }
  if (operation.type == Operation::Type::access) {
    return try_to_access(static_cast<Accessing&>(operation));
  }
  auto& buffer = static_cast<Buffer&>(operation);
  if (operation.type == Operation::Type::receive) {
    return ::fi_recv(endpoint, buffer.memory, kBufferBytes, buffer.descriptor, FI_ADDR_UNSPEC,
                     context);
  }
  return ::fi_send(endpoint, buffer.memory, buffer.bytes, buffer.descriptor,
                   address_of(buffer.rank), context);
}

void OfiDriver::begin(Operation& operation) {
  const bool is_receive = operation.type == Operation::Type::receive;
  if (!is_receive && address_of(operation.rank) == FI_ADDR_NOTAVAIL) {
    return failed(operation, "that rank is unreachable");
  }
  const ssize_t result = try_to_begin(operation);
  if (result == -FI_EAGAIN || (is_receive && result != 0)) {
    waiting_.push_back(&operation);
  } else if (result != 0) {
    failed(operation, library().strerror(static_cast<int>(-result)));
  }
}

// Starts queued operations. All of them are tried, because a rank that accepts none must not block
// operations to other ranks.
bool OfiDriver::begin_waiting() {
  if (waiting_.empty()) return false;
  const std::vector<Operation*> before = std::exchange(waiting_, {});
  for (Operation* const operation : before) begin(*operation);
  return waiting_.size() < before.size();
}

void OfiDriver::post_receive(Buffer& buffer) {
  buffer.type = Operation::Type::receive;
  buffer.send = nullptr;
  begin(buffer);
}

// ---- sending

OfiDriver::Buffer& OfiDriver::take_buffer_for(int rank, const Header& header) {
  Buffer& buffer = take_buffer();
  buffer.type = Operation::Type::send;
  buffer.rank = rank;
  buffer.send = nullptr;
  buffer.bytes = sizeof(header);
  std::memcpy(buffer.memory, &header, sizeof(header));
  return buffer;
}

void OfiDriver::send(Send& send) {
  if (closed_) return events().through(send, false);
  Buffer& buffer = take_buffer_for(send.to, send.header);
  if (send.bytes > kEagerBytes) return lend(send, buffer);
  if (send.bytes > 0) std::memcpy(buffer.memory + sizeof(Header), send.payload, send.bytes);
  buffer.bytes += send.bytes;
  buffer.send = &send;
  begin(buffer);
}

void OfiDriver::lend(Send& send, Buffer& buffer) {
  const uint64_t id = next_loan_++;
  Loan& loan = loans_[id];
  loan.send = &send;
  const Registration* region = kept(send.payload);
  if (region == nullptr) {
    loan.registration = registered({send.payload, send.bytes}, FI_REMOTE_READ);
    if (!loan.registration) {
      free_.push_back(&buffer);
      return end_sends(send.to, "memory cannot be registered (ulimit -l)");
    }
    region = &loan.registration;
  }
  const Remote remote{region->key(), address_in(send.payload), id, ranks_.own};
  std::memcpy(buffer.memory + sizeof(Header), &remote, sizeof(remote));
  buffer.bytes += sizeof(remote);
  begin(buffer);
}

void OfiDriver::end_loan(uint64_t id, int rank, bool well) {
  const auto found = loans_.find(id);
  if (found == loans_.end() || found->second.send->to != rank) return;
  Send& send = *found->second.send;
  loans_.erase(found);  // erased before through(), which returns the payload to its owner
  events().through(send, well);
}

// ---- receiving

OfiDriver::Remote OfiDriver::remote_in(const void* data) {
  Remote remote;
  std::memcpy(&remote, data, sizeof(remote));
  return remote;
}

void OfiDriver::on_received(Buffer& buffer, size_t bytes) {
  Arrival arrival;
  Header& header = arrival.header;
  if (bytes < sizeof(Header)) return post_receive(buffer);
  std::memcpy(&header, buffer.memory, sizeof(Header));
  if (!events().is_ours(header)) return post_receive(buffer);
  std::byte* const payload = buffer.memory + sizeof(Header);
  const size_t payload_bytes = header.kind == Kind::message ? header.message.bytes : 0;
  arrival.rendezvous = payload_bytes > kEagerBytes;
  const size_t follows = arrival.rendezvous ? sizeof(Remote) : payload_bytes;
  const bool fits = bytes == sizeof(Header) + follows && payload_bytes <= fabric::kMessageBytes;
  bool keeps = false;
  if (fits && header.kind == Kind::taken) {
    end_loan(header.communicator, header.sender, true);
  } else if (fits) {
    if (follows > fabric::kSmallBytes || arrival.rendezvous) {
      arrival.data = payload;
    } else {
      std::memcpy(arrival.small.data(), payload, follows);
    }
    keeps = events().arrived(arrival) && arrival.data != nullptr;
    if (!keeps && arrival.rendezvous) notify_taken(remote_in(payload));
  }
  if (!keeps) return post_receive(buffer);
  // drop() finds the buffer by a pointer stored in place of the header.
  Buffer* const self = &buffer;
  std::memcpy(buffer.memory, &self, sizeof(self));
  post_receive(take_buffer());
}

namespace {

// Returns the buffer of an arrival. on_received() has stored a pointer to it where the header was,
// before the payload.
template <typename Buffer>
Buffer& buffer_of(const Arrival& arrival) {
  Buffer* buffer = nullptr;
  std::memcpy(&buffer, static_cast<const std::byte*>(arrival.data) - sizeof(Header),
              sizeof(buffer));
  return *buffer;
}

}  // namespace

void OfiDriver::receive(const Arrival& arrival, std::byte* memory,
                        std::atomic<RendezvousState>& coming) {
  const auto idle = std::ranges::find(reads_, nullptr, &Read::coming);
  Read& read = idle != reads_.end() ? *idle : reads_.emplace_back();
  read.type = Operation::Type::read;
  read.from = remote_in(arrival.data);
  free_.push_back(&buffer_of<Buffer>(arrival));
  read.rank = read.from.rank;
  read.memory = memory;
  read.bytes = arrival.header.message.bytes;
  read.coming = &coming;
  coming.store(RendezvousState::in_flight, std::memory_order_relaxed);
  if (closed_ || read.rank < 0 || read.rank >= ranks_.count) {
    return failed(read, "that rank's memory cannot be read");
  }
  read.descriptor = nullptr;
  if (local_) {
    const Registration* region = kept(memory);
    if (region == nullptr) {
      read.own = registered({memory, read.bytes}, FI_READ);
      if (!read.own) return failed(read, "memory cannot be registered (ulimit -l)");
      region = &read.own;
    }
    read.descriptor = region->descriptor();
  }
  begin(read);
}

void OfiDriver::drop(const Arrival& arrival) {
  if (arrival.rendezvous) notify_taken(remote_in(arrival.data));
  free_.push_back(&buffer_of<Buffer>(arrival));
}

void OfiDriver::notify_taken(const Remote& remote) {
  if (closed_ || remote.rank < 0 || remote.rank >= ranks_.count) return;
  const Header header{.key = events().key_of(remote.rank),
                      .communicator = remote.id,
                      .sender = ranks_.own,
                      .kind = Kind::taken};
  begin(take_buffer_for(remote.rank, header));
}

// ---- remote memory access

struct OfiDriver::Foreign final : fabric::Remote {
  struct Key {
    uint64_t key = 0;
    uint64_t address = 0;  // address of the memory's beginning
  };
  explicit Foreign(const Key& key) : key(key) {}
  const Key key;
};

OfiDriver::Exposed OfiDriver::expose(std::span<std::byte> memory) {
  if (!accesses_ || closed_) return {};
  const uint64_t id = next_key_;
  Registration registration = registered(memory, FI_REMOTE_READ | FI_REMOTE_WRITE);
  if (!registration) return {};
  const Foreign::Key key{registration.key(), address_in(memory.data())};
  exposed_.emplace(id, std::move(registration));
  return {id, std::string(reinterpret_cast<const char*>(&key), sizeof(key))};
}

std::unique_ptr<fabric::Remote> OfiDriver::reach(int rank, std::string_view key) {
  Foreign::Key of;
  if (!accesses_ || closed_ || key.size() != sizeof(of)) return nullptr;
  if (address_of(rank) == FI_ADDR_NOTAVAIL) return nullptr;
  std::memcpy(&of, key.data(), sizeof(of));
  return std::make_unique<Foreign>(of);
}

void OfiDriver::access(fabric::Access& access) {
  const auto idle = std::ranges::find(accessing_, nullptr, &Accessing::access);
  Accessing& accessing = idle != accessing_.end() ? *idle : accessing_.emplace_back();
  accessing.type = Operation::Type::access;
  accessing.rank = access.rank;
  accessing.access = &access;
  accessing.descriptor = nullptr;
  if (closed_) return failed(accessing, "this process has closed its endpoint");
  if (local_) {
    const Registration* const region = kept(access.memory);
    if (region == nullptr) return failed(accessing, "memory cannot be registered (ulimit -l)");
    accessing.descriptor = region->descriptor();
  }
  begin(accessing);
}

ssize_t OfiDriver::try_to_access(Accessing& accessing) {
  const fabric::Access& access = *accessing.access;
  const Foreign::Key& key = static_cast<const Foreign&>(*access.remote).key;
  const uint64_t address = key.address + access.offset;
  const fi_addr_t peer = address_of(access.rank);
  if (!access.writes) {
    return ::fi_read(fabric_.endpoint.get(), access.memory, access.bytes, accessing.descriptor,
                     peer, address, key.key, &accessing.context);
  }
  const iovec from{access.memory, access.bytes};
  const fi_rma_iov to{address, access.bytes, key.key};
  const fi_msg_rma message{.msg_iov = &from,
                           .desc = &accessing.descriptor,
                           .iov_count = 1,
                           .addr = peer,
                           .rma_iov = &to,
                           .rma_iov_count = 1,
                           .context = &accessing.context,
                           .data = 0};
  return ::fi_writemsg(fabric_.endpoint.get(), &message, FI_DELIVERY_COMPLETE);
}

// ---- progress

bool OfiDriver::progress() {
  if (closed_) return false;
  bool moved = begin_waiting();
  std::array<fi_cq_msg_entry, kCompletionsAtATime> entries;
  const ssize_t count = ::fi_cq_read(fabric_.completions.get(), entries.data(), entries.size());
  if (count == -FI_EAVAIL) return take_error() || moved;
  for (ssize_t i = 0; i < count; ++i) {
    completed(*static_cast<Operation*>(entries[i].op_context), entries[i].len);
  }
  return count > 0 || moved;
}

void OfiDriver::completed(Operation& operation, size_t bytes) {
  switch (operation.type) {
    case Operation::Type::receive:
      return on_received(static_cast<Buffer&>(operation), bytes);
    case Operation::Type::send: {
      auto& buffer = static_cast<Buffer&>(operation);
      free_.push_back(&buffer);
      if (Send* const send = std::exchange(buffer.send, nullptr)) events().through(*send, true);
      return;
    }
    case Operation::Type::read: {
      auto& read = static_cast<Read&>(operation);
      read.own = {};
      notify_taken(read.from);
      std::exchange(read.coming, nullptr)->store(RendezvousState::here, std::memory_order_release);
      return;
    }
    case Operation::Type::access: {
      auto& accessing = static_cast<Accessing&>(operation);
      return events().accessed(*std::exchange(accessing.access, nullptr), true);
    }
  }
}

bool OfiDriver::take_error() {
  fi_cq_err_entry error{};
  if (::fi_cq_readerr(fabric_.completions.get(), &error, 0) < 1) return false;
  if (error.op_context == nullptr) return true;
  auto& operation = *static_cast<Operation*>(error.op_context);
  // A failed receive is not repeated, because it would fail again. The exception is a receive whose
  // message was too long.
  const bool is_receive = operation.type == Operation::Type::receive;
  if (!is_receive || error.err == FI_ETRUNC) failed(operation, library().strerror(error.err));
  return true;
}

void OfiDriver::failed(Operation& operation, const std::string& why) {
  // A failed receive had a message that is too long, which comes from outside the job. The buffer
  // is used for another receive.
  if (operation.type == Operation::Type::receive) {
    if (!closed_) post_receive(static_cast<Buffer&>(operation));
    return;
  }
  events().broke(operation.rank, why);
  if (operation.type == Operation::Type::read) {
    auto& read = static_cast<Read&>(operation);
    read.own = {};
    std::exchange(read.coming, nullptr)->store(RendezvousState::lost, std::memory_order_release);
  } else if (operation.type == Operation::Type::access) {
    auto& accessing = static_cast<Accessing&>(operation);
    events().accessed(*std::exchange(accessing.access, nullptr), false);
  } else {
    auto& buffer = static_cast<Buffer&>(operation);
    free_.push_back(&buffer);
    if (Send* const send = std::exchange(buffer.send, nullptr)) events().through(*send, false);
  }
  end_sends(operation.rank, why);
}

bool OfiDriver::arm() {
  if (closed_ || fabric_.event_fd < 0) return true;
  fid* const all = &fabric_.completions->fid;
  std::array<fid*, 1> one = {all};
  return ::fi_trywait(fabric_.fabric.get(), one.data(), 1) != -FI_EAGAIN;
}

// ---- breaking

// Ends the sends to a rank. The provider may continue to use messages in the driver's buffers.
void OfiDriver::end_sends(int rank, const std::string& why) {
  events().broke(rank, why);
  for (Buffer& buffer : buffers_) {
    if (buffer.rank != rank || buffer.send == nullptr) continue;
    events().through(*std::exchange(buffer.send, nullptr), false);
  }
  std::vector<uint64_t> ids;
  for (const auto& [id, loan] : loans_) {
    if (loan.send->to == rank) ids.push_back(id);
  }
  for (const uint64_t id : ids) end_loan(id, rank, false);
}

// Cuts the path to a rank. If reads from that rank are in flight, closes the endpoint, because
// libfabric has no other way to cancel them; then the paths to all ranks are lost.
void OfiDriver::cut(int rank) {
  const std::string why = "the connection was cut to end a call that was aborted";
  end_sends(rank, why);
  const bool reads = std::ranges::any_of(
      reads_, [rank](const Read& read) { return read.coming != nullptr && read.rank == rank; });
  if (reads) close();
}

void OfiDriver::cut_all() { close(); }

void OfiDriver::close() {
  if (std::exchange(closed_, true)) return;
  for (int rank = 0; rank < ranks_.count; ++rank) {
    if (rank != ranks_.own) end_sends(rank, "this process has closed its endpoint");
  }
  waiting_.clear();
  close_endpoint();
  for (Read& read : reads_) {
    if (read.coming == nullptr) continue;
    read.own = {};
    std::exchange(read.coming, nullptr)->store(RendezvousState::lost, std::memory_order_release);
  }
  for (Accessing& accessing : accessing_) {
    if (accessing.access == nullptr) continue;
    events().accessed(*std::exchange(accessing.access, nullptr), false);
  }
}

// Closes the endpoint. Memory bound to the endpoint is released first, because bound memory would
// keep the endpoint open.
void OfiDriver::close_endpoint() {
  if (fabric_.wants(FI_MR_ENDPOINT)) {
    for (Read& read : reads_) read.own = {};
    loans_.clear();
    exposed_.clear();
    kept_.clear();
    block_registrations_.clear();
  }
  fabric_.endpoint.reset();
}

void OfiDriver::abandon() {
  static_cast<void>(fabric_.endpoint.release());
  static_cast<void>(fabric_.completions.release());
  static_cast<void>(fabric_.addresses.release());
  static_cast<void>(fabric_.domain.release());
  static_cast<void>(fabric_.fabric.release());
  for (auto& [memory, registration] : kept_) registration.abandon();
  for (Registration& registration : block_registrations_) registration.abandon();
  for (auto& [id, loan] : loans_) loan.registration.abandon();
  for (Read& read : reads_) read.own.abandon();
  for (auto& [id, registration] : exposed_) registration.abandon();
}

}  // namespace tutti::ofi
