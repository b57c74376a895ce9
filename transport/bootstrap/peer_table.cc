#include "transport/bootstrap/peer_table.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/text.h"

namespace tutti::bootstrap {

namespace {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

// Abstract unix sockets, by which descriptors travel, end at the network namespace.
std::string network_namespace() {
  struct stat status {};
  if (::stat("/proc/self/ns/net", &status) != 0) return "?";
  return cat(status.st_dev, ":", status.st_ino);
}

}  // namespace

void put(FrameWriter& frame, const PeerInfo& peer) {
  frame.put_text(peer.host)
      .put_text(peer.host_id)
      .put(peer.pid)
      .put_text(peer.address)
      .put(peer.port)
      .put_text(peer.unix_name)
      .put_text(peer.note)
      .put(int32_t{peer.domain.numa_node})
      .put(int32_t{peer.domain.cache});
}

PeerInfo get_peer(FrameReader& frame) {
  PeerInfo peer;
  peer.host = frame.get_text();
  peer.host_id = frame.get_text();
  peer.pid = frame.get<int64_t>();
  peer.address = frame.get_text();
  peer.port = frame.get<uint16_t>();
  peer.unix_name = frame.get_text();
  peer.note = frame.get_text();
  peer.domain.numa_node = frame.get<int32_t>();
  peer.domain.cache = frame.get<int32_t>();
  return peer;
}

PeerInfo describe_self() {
  PeerInfo self;
  self.host = host_name();
  self.pid = ::getpid();
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  self.host_id = cat(self.host, "/", boot, "/", network_namespace());
  return self;
}

std::string describe(int rank, const PeerInfo& peer) {
  return cat("rank ", rank, " (", peer.host, ", pid ", peer.pid, ")");
}

}  // namespace tutti::bootstrap
