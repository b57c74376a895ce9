// The PeerInfo of all ranks, which rank 0 collects and distributes.
#pragma once

#include <vector>

#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/handshake/peer_info.h"

namespace tutti::bootstrap {

void put(FrameWriter& frame, const PeerInfo& peer);
PeerInfo get_peer(FrameReader& frame);
// Writes the PeerInfo of all ranks: for each rank its pid, port and unix_name, and the other fields
// only if they differ from those of the rank before.
void put(FrameWriter& frame, const std::vector<PeerInfo>& peers);
std::vector<PeerInfo> get_peers(FrameReader& frame, int size);

// Describes this process, without its addresses. Ranks with equal host_id can share memory.
PeerInfo describe_self();

// Formats as "rank 3 (node7, pid 1234)".
std::string describe(int rank, const PeerInfo& peer);

}  // namespace tutti::bootstrap
