#include "bindings/nccl_plugins/net_meeting.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/random_token.h"
#include "base/settings.h"
#include "base/text.h"

namespace tutti::nccl {

namespace {

constexpr uint64_t kMagic = 0x74756e6363317475;
// Number of ranks in the handshake, in which the listener is rank 0 and the connector is rank 1.
constexpr int kEnds = 2;
constexpr int kConnector = 1;
// Default number of TCP connections. A single one is limited by its TCP window and by the CPU core
// that runs its kernel processing.
constexpr int kUsualStreams = 4;

int streams_wanted() {
  const int64_t set = settings().get_int("TUTTI_TCP_STREAMS");
  return set > 0 ? static_cast<int>(std::min<int64_t>(set, kMostStreams)) : kUsualStreams;
}

template <size_t kSize>
std::string text_of(const std::array<char, kSize>& field) {
  return {field.data(), ::strnlen(field.data(), kSize)};
}

uint64_t random_number() {
  const bootstrap::Nonce nonce = bootstrap::random_nonce();
  uint64_t number = 0;
  std::memcpy(&number, nonce.data(), sizeof(number));
  return number;
}

bootstrap::Decision judge(const bootstrap::Hello& hello, int streams) {
  const bool fits = hello.purpose == bootstrap::Purpose::data && hello.rank == kConnector &&
                    hello.lane >= 0 && hello.lane < streams;
  return fits ? bootstrap::Decision::accept : bootstrap::Decision::not_in_job;
}

// Handles ready descriptors without blocking.
void turn(bootstrap::PollSet& set) {
  set.wake_at(Clock::now());
  set.run();
}

}  // namespace

Handle read_handle(const void* memory) {
  Handle handle;
  std::memcpy(static_cast<void*>(&handle), memory, sizeof(handle));
  const bool sound = handle.magic == kMagic && handle.streams > 0 &&
                     handle.streams <= kMostStreams && handle.address.back() == 0;
  if (!sound) {
    throw Error(ErrorCode::invalid_argument, "the connection handle was not created by Tutti",
                {.cause = "the other rank uses another network plugin",
                 .remedy = "set NCCL_NET_PLUGIN to the same value on all ranks"});
  }
  return handle;
}

void write_handle(const Handle& handle, void* memory) {
  std::memcpy(memory, &handle, sizeof(handle));
}

Listener::Listener(const std::string& interface) {
  Fd socket = bootstrap::listen_on(bootstrap::resolve_interface(interface, 0).front());
  const bootstrap::SocketAddress address = bootstrap::local_address(socket.get());
  const std::string key = random_token();
  const std::string host = address.host();
  handle_.magic = kMagic;
  std::copy_n(key.begin(), std::min(key.size(), handle_.key.size()), handle_.key.begin());
  std::copy_n(host.begin(), std::min(host.size(), handle_.address.size() - 1),
              handle_.address.begin());
  handle_.port = address.port();
  handle_.streams = static_cast<uint16_t>(streams_wanted());
  acceptor_ = bootstrap::Acceptor(std::move(socket), std::string(), kEnds);
  acceptor_.set_session_key(text_of(handle_.key));
}

std::optional<Streams> Listener::accept() {
  bootstrap::PollSet set;
  const int streams = handle_.streams;
  acceptor_.watch(
      set, [streams](const bootstrap::Hello& hello) { return judge(hello, streams); },
      [this](const bootstrap::Hello& hello, ByteStream socket) {
        welcome(hello, socket.release());
      });
  turn(set);
  if (come_.empty()) return std::nullopt;
  Streams first = std::move(come_.front());
  come_.erase(come_.begin());
  return first;
}

void Listener::welcome(const bootstrap::Hello& hello, Fd socket) {
  Streams& streams = coming_[hello.communicator];
  streams.resize(handle_.streams);
  streams[static_cast<size_t>(hello.lane)] = std::move(socket);
  if (!std::ranges::all_of(streams, [](const Fd& stream) { return static_cast<bool>(stream); })) {
    return;
  }
  come_.push_back(std::move(streams));
  coming_.erase(hello.communicator);
}

Connecting::Connecting(const Handle& handle)
    : connector_(text_of(handle.key), kEnds), streams_(handle.streams), missing_(handle.streams) {
  const PeerInfo peer{.address = text_of(handle.address), .port = handle.port};
  const uint64_t number = random_number();
  for (int stream = 0; stream < handle.streams; ++stream) {
    bootstrap::Hello hello;
    hello.purpose = bootstrap::Purpose::data;
    hello.rank = kConnector;
    hello.size = kEnds;
    hello.communicator = number;
    hello.lane = stream;
    connector_.start(peer, 0, hello, "NCCL's peer");
  }
}

std::optional<Streams> Connecting::advance() {
  bootstrap::PollSet set;
  connector_.watch(
      set,
      [this](uint64_t, int, int stream, ByteStream socket) {
        streams_[static_cast<size_t>(stream)] = socket.release();
        --missing_;
      },
      [this](uint64_t, int, const Error& error) { failure_ = error; });
  if (failure_) throw Error(*failure_);
  turn(set);
  if (missing_ > 0) return std::nullopt;
  return std::move(streams_);
}

}  // namespace tutti::nccl
