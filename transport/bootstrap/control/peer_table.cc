#include "transport/bootstrap/control/peer_table.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/host_name.h"
#include "base/settings.h"
#include "base/text.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

namespace {

std::string namespace_id(const char* path) {
  struct stat status {};
  if (::stat(path, &status) != 0) return "?";
  return cat(status.st_dev, ":", status.st_ino);
}

// Returns a text that is equal for ranks that can share memory. Descriptors travel over abstract
// unix sockets, which are confined to a network namespace. They are passed only to processes of the
// same user, whose id is relative to its user namespace.
std::string who_shares_memory() {
  return cat(namespace_id("/proc/self/ns/net"), "/", namespace_id("/proc/self/ns/user"), "/user ",
             ::geteuid());
}

// Fields that consecutive ranks are likely to share. The table stores only those that differ from
// the previous rank.
enum Part : uint8_t {
  host = 1,
  address = 2,
  rails = 4,
  note = 8,
  fabric = 16,
  domain = 32,
  rack = 64
};
constexpr uint8_t kAllParts = 127;

bool same_rail(const RailAddress& a, const RailAddress& b) {
  return a.address == b.address && a.port == b.port;
}

uint8_t parts_that_differ(const PeerInfo& a, const PeerInfo& b) {
  int parts = 0;
  if (a.host != b.host || a.host_id != b.host_id) parts |= Part::host;
  if (a.address != b.address) parts |= Part::address;
  if (!std::ranges::equal(a.more_rails, b.more_rails, same_rail)) parts |= Part::rails;
  if (a.note != b.note) parts |= Part::note;
  if (a.fabric != b.fabric) parts |= Part::fabric;
  if (a.domain.numa_node != b.domain.numa_node || a.domain.cache != b.domain.cache) {
    parts |= Part::domain;
  }
  if (a.rack != b.rack) parts |= Part::rack;
  return static_cast<uint8_t>(parts);
}

void put_parts(FrameWriter& frame, const PeerInfo& peer, uint8_t parts) {
  frame.put(peer.pid).put(peer.port).put_text(peer.unix_name);
  if (parts & Part::host) frame.put_text(peer.host).put_text(peer.host_id);
  if (parts & Part::address) frame.put_text(peer.address);
  if (parts & Part::rails) {
    frame.put(static_cast<uint8_t>(peer.more_rails.size()));
    for (const RailAddress& rail : peer.more_rails) frame.put_text(rail.address).put(rail.port);
  }
  if (parts & Part::note) frame.put_text(peer.note);
  if (parts & Part::fabric) frame.put_text(peer.fabric);
  if (parts & Part::domain) {
    frame.put(int32_t{peer.domain.numa_node}).put(int32_t{peer.domain.cache});
  }
  if (parts & Part::rack) frame.put_text(peer.rack);
}

void get_parts(FrameReader& frame, PeerInfo& peer, uint8_t parts) {
  peer.pid = frame.get<int64_t>();
  peer.port = frame.get<uint16_t>();
  peer.unix_name = frame.get_text();
  if (parts & Part::host) {
    peer.host = frame.get_text();
    peer.host_id = frame.get_text();
  }
  if (parts & Part::address) peer.address = frame.get_text();
  if (parts & Part::rails) {
    peer.more_rails.resize(frame.get<uint8_t>());
    for (RailAddress& rail : peer.more_rails) {
      rail.address = frame.get_text();
      rail.port = frame.get<uint16_t>();
    }
  }
  if (parts & Part::note) peer.note = frame.get_text();
  if (parts & Part::fabric) peer.fabric = frame.get_text();
  if (parts & Part::domain) {
    peer.domain.numa_node = frame.get<int32_t>();
    peer.domain.cache = frame.get<int32_t>();
  }
  if (parts & Part::rack) peer.rack = frame.get_text();
}

}  // namespace

void put(FrameWriter& frame, const PeerInfo& peer) { put_parts(frame, peer, kAllParts); }

PeerInfo get_peer(FrameReader& frame) {
  PeerInfo peer;
  get_parts(frame, peer, kAllParts);
  return peer;
}

void put(FrameWriter& frame, const std::vector<PeerInfo>& peers) {
  const PeerInfo nobody;
  const PeerInfo* last = &nobody;
  for (const PeerInfo& peer : peers) {
    const uint8_t parts = parts_that_differ(peer, *last);
    frame.put(parts);
    put_parts(frame, peer, parts);
    last = &peer;
  }
}

std::vector<PeerInfo> get_peers(FrameReader& frame, int size) {
  std::vector<PeerInfo> peers;
  while (static_cast<int>(peers.size()) < size && frame.ok()) {
    PeerInfo peer = peers.empty() ? PeerInfo{} : peers.back();
    get_parts(frame, peer, frame.get<uint8_t>());
    peers.push_back(std::move(peer));
  }
  return peers;
}

PeerInfo describe_self() {
  PeerInfo self;
  const std::string named = settings().get_string("TUTTI_HOST");
  self.host = named.empty() ? host_name() : named;
  self.pid = ::getpid();
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  self.host_id = cat(host_name(), "/", boot, "/", who_shares_memory());
  return self;
}

std::string describe(int rank, const PeerInfo& peer) {
  return cat("rank ", rank, " (", peer.host, ", pid ", peer.pid, ")");
}

}  // namespace tutti::bootstrap
