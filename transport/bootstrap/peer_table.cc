#include "transport/bootstrap/peer_table.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/text.h"
#include "transport/bootstrap/socket.h"

namespace tutti::bootstrap {

namespace {

std::string namespace_id(const char* path) {
  struct stat status {};
  if (::stat(path, &status) != 0) return "?";
  return cat(status.st_dev, ":", status.st_ino);
}

// Descriptors travel by abstract unix sockets, which end at the network namespace, and go to
// processes of the same user only, whose number means something in its user namespace.
std::string who_shares_memory() {
  return cat(namespace_id("/proc/self/ns/net"), "/", namespace_id("/proc/self/ns/user"), "/user ",
             ::geteuid());
}

void put_host(FrameWriter& frame, const PeerInfo& peer) {
  frame.put_text(peer.host).put_text(peer.host_id);
}

void get_host(FrameReader& frame, PeerInfo& peer) {
  peer.host = frame.get_text();
  peer.host_id = frame.get_text();
}

void put_rest(FrameWriter& frame, const PeerInfo& peer) {
  frame.put(peer.pid).put_text(peer.address).put(peer.port);
  frame.put(static_cast<uint8_t>(peer.more_rails.size()));
  for (const RailAddress& rail : peer.more_rails) frame.put_text(rail.address).put(rail.port);
  frame.put_text(peer.unix_name)
      .put_text(peer.note)
      .put_text(peer.fabric)
      .put(int32_t{peer.domain.numa_node})
      .put(int32_t{peer.domain.cache});
}

void get_rest(FrameReader& frame, PeerInfo& peer) {
  peer.pid = frame.get<int64_t>();
  peer.address = frame.get_text();
  peer.port = frame.get<uint16_t>();
  peer.more_rails.resize(frame.get<uint8_t>());
  for (RailAddress& rail : peer.more_rails) {
    rail.address = frame.get_text();
    rail.port = frame.get<uint16_t>();
  }
  peer.unix_name = frame.get_text();
  peer.note = frame.get_text();
  peer.fabric = frame.get_text();
  peer.domain.numa_node = frame.get<int32_t>();
  peer.domain.cache = frame.get<int32_t>();
}

}  // namespace

void put(FrameWriter& frame, const PeerInfo& peer) {
  put_host(frame, peer);
  put_rest(frame, peer);
}

PeerInfo get_peer(FrameReader& frame) {
  PeerInfo peer;
  get_host(frame, peer);
  get_rest(frame, peer);
  return peer;
}

void put(FrameWriter& frame, const std::vector<PeerInfo>& peers) {
  const PeerInfo* last = nullptr;
  for (const PeerInfo& peer : peers) {
    const bool same = last != nullptr && peer.host == last->host && peer.host_id == last->host_id;
    frame.put(static_cast<uint8_t>(same));
    if (!same) put_host(frame, peer);
    put_rest(frame, peer);
    last = &peer;
  }
}

std::vector<PeerInfo> get_peers(FrameReader& frame, int size) {
  std::vector<PeerInfo> peers;
  while (static_cast<int>(peers.size()) < size && frame.ok()) {
    PeerInfo peer;
    if (frame.get<uint8_t>() != 0 && !peers.empty()) {
      peer.host = peers.back().host;
      peer.host_id = peers.back().host_id;
    } else {
      get_host(frame, peer);
    }
    get_rest(frame, peer);
    peers.push_back(std::move(peer));
  }
  return peers;
}

PeerInfo describe_self() {
  PeerInfo self;
  self.host = host_name();
  self.pid = ::getpid();
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  self.host_id = cat(self.host, "/", boot, "/", who_shares_memory());
  return self;
}

std::string describe(int rank, const PeerInfo& peer) {
  return cat("rank ", rank, " (", peer.host, ", pid ", peer.pid, ")");
}

}  // namespace tutti::bootstrap
