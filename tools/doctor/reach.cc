#include "tools/doctor/reach.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <random>
#include <span>

#include "base/error.h"
#include "base/settings.h"
#include "base/start_thread.h"
#include "base/text.h"
#include "tools/launcher/address.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::tool {

namespace {

using bootstrap::SocketAddress;
using bootstrap::Transfer;
using std::chrono::milliseconds;

// The system itself reports an error for an unused address after about 3 s.
constexpr milliseconds kConnectWithin{4000};
constexpr milliseconds kAnswerWithin{3000};
constexpr size_t kBulkBytes = 64 << 10;
constexpr size_t kMostGuests = 1024;
constexpr size_t kMostAtATime = 32;
constexpr int kDatagrams = 8;  // maximum number of datagrams sent, one of which must be answered
// Pause between two datagrams. It is random, because hosts that send at the same moment could
// overflow the receiver's buffer each time.
constexpr int kShortestPause_ms = 60;
constexpr int kLongestPause_ms = 190;
constexpr size_t kSmallPacket = 256;
constexpr size_t kLargestPacket = 65535;  // largest IP packet

size_t header_bytes(int family) { return family == AF_INET ? 20 + 8 : 40 + 8; }

SocketAddress numeric_address(const std::string& host, uint16_t port) {
  return bootstrap::resolve(host, port).front();
}

const Interface* interface_with(const std::vector<Interface>& interfaces,
                                const std::string& address) {
  const auto found = std::ranges::find_if(interfaces, [&](const Interface& one) {
    return std::ranges::find(one.addresses, address) != one.addresses.end();
  });
  return found == interfaces.end() ? nullptr : &*found;
}

// Finds the source address of this host's route to `there`. Returns 0, or an errno if there is no
// route.
int route_to(const SocketAddress& there, std::string& own) {
  const Fd probe(::socket(there.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || ::connect(probe.get(), there.get(), there.length) != 0) return errno;
  own = bootstrap::local_address(probe.get()).host();
  return 0;
}

// Returns a datagram socket that never fragments, whatever the known path MTU.
Fd whole_datagrams(int family) {
  Fd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw system_error("socket", errno);
  const int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
  const int option = family == AF_INET ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER;
  static_assert(IP_PMTUDISC_PROBE == IPV6_PMTUDISC_PROBE);
  const int value = IP_PMTUDISC_PROBE;
  ::setsockopt(socket.get(), level, option, &value, sizeof value);
  return socket;
}

// Returns the first bytes of a datagram of that size; the answer consists of the same bytes.
std::string mark(std::string_view nonce, size_t bytes) {
  std::string text = cat(nonce, ' ', bytes);
  text.resize(kNonceBytes + 8, ' ');
  return text;
}

// Returns true if the doctor at `there` answers a datagram whose packet has this size. The answer
// is small.
bool packet_arrives(const SocketAddress& there, const std::string& own, size_t packet,
                    std::string_view nonce) {
  const size_t bytes = std::min(packet, kLargestPacket) - header_bytes(there.family());
  const Fd socket = whole_datagrams(there.family());
  if (!own.empty()) {
    const SocketAddress from = numeric_address(own, 0);
    if (::bind(socket.get(), from.get(), from.length) != 0) return false;
  }
  if (::connect(socket.get(), there.get(), there.length) != 0) return false;
  const std::string expected = mark(nonce, bytes);
  std::string datagram = expected;
  datagram.resize(bytes, '.');
  std::random_device random;
  std::uniform_int_distribution<int> pause(kShortestPause_ms, kLongestPause_ms);
  for (int i = 0; i < kDatagrams; ++i) {
    // send() may report that the previous datagram was refused, but sends this one.
    if (::send(socket.get(), datagram.data(), bytes, 0) < 0 && errno == EMSGSIZE) return false;
    const Deadline deadline = Deadline::after(milliseconds(pause(random)));
    while (bootstrap::wait_for(socket.get(), POLLIN, deadline)) {
      std::array<char, 128> answer;
      const ssize_t got = ::recv(socket.get(), answer.data(), answer.size(), 0);
      if (got > 0 && std::string_view(answer.data(), static_cast<size_t>(got)) == expected) {
        return true;
      }
      if (got < 0) break;
    }
  }
  return false;
}

bool hears_nonce(int socket, std::string_view nonce) {
  std::array<std::byte, kNonceBytes> answer;
  return bootstrap::read_exactly(socket, answer, Deadline::after(kAnswerWithin)) ==
             Transfer::complete &&
         std::memcmp(answer.data(), nonce.data(), kNonceBytes) == 0;
}

bool says(int socket, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return bootstrap::write_exactly(socket, bytes, Deadline::after(kAnswerWithin)) ==
         Transfer::complete;
}

int connect_to(const SocketAddress& there, const std::string& own, Fd& socket) {
  if (own.empty()) return bootstrap::try_connect(there, Deadline::after(kConnectWithin), socket);
  const SocketAddress from = numeric_address(own, 0);
  const int error = bootstrap::begin_connect(there, socket, &from);
  if (error != 0 && error != EINPROGRESS) return error;
  if (!bootstrap::wait_for(socket.get(), POLLOUT, Deadline::after(kConnectWithin))) {
    return ETIMEDOUT;
  }
  return bootstrap::end_connect(socket.get());
}

void try_stream(const Target& target, std::string_view nonce, Reach& reach) {
  Fd socket;
  const SocketAddress there = numeric_address(target.there.address, target.there.tcp_port);
  reach.connect_error = connect_to(there, target.own, socket);
  if (reach.connect_error != 0) return;
  reach.answered = says(socket.get(), nonce) && hears_nonce(socket.get(), nonce);
  reach.bulk = reach.answered && says(socket.get(), std::string(kBulkBytes, '.')) &&
               hears_nonce(socket.get(), nonce);
}

void try_packets(const Target& target, const std::vector<Interface>& interfaces,
                 std::string_view nonce, Reach& reach) {
  const Interface* interface = interface_with(interfaces, reach.own);
  if (interface == nullptr || interface->mtu <= static_cast<int>(kSmallPacket)) return;
  reach.packet = interface->mtu;
  reach.common_packet =
      target.there.mtu > 0 ? std::min(interface->mtu, target.there.mtu) : interface->mtu;
  const SocketAddress there = numeric_address(target.there.address, target.there.udp_port);
  const auto arrives = [&](size_t packet) {
    return packet_arrives(there, target.own, packet, nonce);
  };
  reach.small_arrived = arrives(kSmallPacket);
  if (!reach.small_arrived) return;
  reach.full_arrived = arrives(static_cast<size_t>(reach.packet));
  reach.common_arrived = reach.packet == reach.common_packet
                             ? reach.full_arrived
                             : arrives(static_cast<size_t>(reach.common_packet));
}

void try_one(const Target& target, const std::vector<Interface>& interfaces, std::string_view nonce,
             Reach& reach) {
  std::string by_route;
  reach.route_error = route_to(numeric_address(target.there.address, 9), by_route);
  if (reach.own.empty()) reach.own = by_route;
  if (reach.route_error != 0) {
    reach.connect_error = reach.route_error;
    return;
  }
  try_stream(target, nonce, reach);
  try_packets(target, interfaces, nonce, reach);
}

// A client that has connected.
struct PendingClient {
  Fd socket;
  std::string said;  // bytes received, up to the nonce
  size_t received = 0;
};

// Reads from a client, and answers after the nonce and after the bulk data. Returns false if the
// connection must be closed, because the client has closed it, has sent a wrong nonce, or cannot be
// answered.
bool attend(PendingClient& guest, const std::string& nonce) {
  std::array<char, 16 << 10> block;
  const ssize_t got = ::recv(guest.socket.get(), block.data(), block.size(), 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  const auto bytes = static_cast<size_t>(got);
  const auto answer = [&] {
    return ::send(guest.socket.get(), nonce.data(), nonce.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(nonce.size());
  };
  const size_t before = guest.received;
  guest.received += bytes;
  if (before < kNonceBytes) {
    guest.said.append(block.data(), std::min(bytes, kNonceBytes - before));
    if (guest.said != nonce.substr(0, guest.said.size())) return false;
    if (guest.said.size() == kNonceBytes && !answer()) return false;
  }
  constexpr size_t kAll = kNonceBytes + kBulkBytes;
  return before >= kAll || guest.received < kAll || answer();
}

void answer_datagram(int socket, std::string_view nonce) {
  std::array<char, kLargestPacket> datagram;
  SocketAddress from;
  from.length = sizeof from.storage;
  const ssize_t got = ::recvfrom(socket, datagram.data(), datagram.size(), MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&from.storage), &from.length);
  if (got <= 0) return;
  const std::string expected = mark(nonce, static_cast<size_t>(got));
  const std::string_view text(datagram.data(), static_cast<size_t>(got));
  if (!text.starts_with(expected)) return;
  ::sendto(socket, expected.data(), expected.size(), MSG_DONTWAIT, from.get(), from.length);
}

}  // namespace

std::vector<std::string> addresses_of_ranks(const std::string& host, const std::string& towards) {
  std::vector<std::string> addresses;
  for (const std::string& name : split(settings().get_string("TUTTI_INTERFACE"), ',')) {
    addresses.push_back(bootstrap::resolve_interface(name, 0).front().host());
  }
  if (!addresses.empty()) return addresses;
  std::string own;
  if (!towards.empty() && route_to(numeric_address(towards, 9), own) == 0) return {own};
  // Listens even without a route to rank 0's host, because other hosts can still try to connect.
  return {reachable_address(host, "")};
}

Listeners::Listeners(const std::vector<std::string>& addresses,
                     const std::vector<Interface>& interfaces, uint16_t port, std::string nonce)
    : nonce_(std::move(nonce)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw system_error("eventfd", errno);
  for (const std::string& address : addresses) {
    tcp_.push_back(bootstrap::listen_on(numeric_address(address, rails_.empty() ? port : 0)));
    const SocketAddress any_port = numeric_address(address, 0);
    udp_.push_back(whole_datagrams(any_port.family()));
    if (::bind(udp_.back().get(), any_port.get(), any_port.length) != 0) {
      throw system_error("bind " + address, errno);
    }
    const Interface* interface = interface_with(interfaces, address);
    rails_.push_back({.interface = interface == nullptr ? "" : interface->name,
                      .address = address,
                      .mtu = interface == nullptr ? 0 : interface->mtu,
                      .tcp_port = bootstrap::local_address(tcp_.back().get()).port(),
                      .udp_port = bootstrap::local_address(udp_.back().get()).port()});
  }
  thread_ = start_thread("listening", [this] { serve(); });
}

Listeners::~Listeners() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void Listeners::serve() {
  std::list<PendingClient> guests;
  for (;;) {
    std::vector<pollfd> ready = {{stop_.get(), POLLIN, 0}};
    for (const Fd& listener : tcp_) ready.push_back({listener.get(), POLLIN, 0});
    for (const Fd& socket : udp_) ready.push_back({socket.get(), POLLIN, 0});
    for (const PendingClient& guest : guests) ready.push_back({guest.socket.get(), POLLIN, 0});
    if (::poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
    if (ready[0].revents != 0) return;
    size_t next = 1 + tcp_.size() + udp_.size();
    for (auto guest = guests.begin(); guest != guests.end(); ++next) {
      const bool stays = ready[next].revents == 0 || attend(*guest, nonce_);
      guest = stays ? std::next(guest) : guests.erase(guest);
    }
    for (size_t i = 0; i < udp_.size(); ++i) {
      if (ready[1 + tcp_.size() + i].revents != 0) answer_datagram(udp_[i].get(), nonce_);
    }
    for (size_t i = 0; i < tcp_.size(); ++i) {
      if (ready[1 + i].revents == 0) continue;
      Fd socket(::accept4(tcp_[i].get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket && guests.size() < kMostGuests) guests.push_back({std::move(socket), "", 0});
    }
  }
}

std::vector<Reach> try_all(int from, const std::vector<Target>& targets,
                           const std::vector<Interface>& interfaces, std::string_view nonce) {
  std::vector<Reach> reaches(targets.size());
  for (size_t first = 0; first < targets.size(); first += kMostAtATime) {
    const size_t end = std::min(targets.size(), first + kMostAtATime);
    std::vector<std::jthread> threads;
    for (size_t i = first; i < end; ++i) {
      threads.push_back(start_thread<std::jthread>("test an address", [&, i] {
        const Target& target = targets[i];
        Reach& reach = reaches[i] = {.from = from,
                                     .to = target.host,
                                     .rail = target.rail,
                                     .address = target.there.address,
                                     .own = target.own};
        try {
          try_one(target, interfaces, nonce, reach);
        } catch (const Error&) {  // an error such as too many open files
          reach.connect_error = EIO;
        }
      }));
    }
  }
  return reaches;
}

}  // namespace tutti::tool
