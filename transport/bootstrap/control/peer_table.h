// The PeerInfo of all ranks, which rank 0 collects and distributes.
#pragma once

#include <vector>

#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/handshake/peer_info.h"

namespace tutti::bootstrap {

void put(FrameWriter& frame, const PeerInfo& peer);
PeerInfo get_peer(FrameReader& frame);
// Writes the PeerInfo of all ranks. After the first rank, only the fields that differ from the rank
// before are written.
void put(FrameWriter& frame, const std::vector<PeerInfo>& peers);
std::vector<PeerInfo> get_peers(FrameReader& frame, int size);

// Describes this process, without its addresses. Ranks with equal host_id can share memory.
PeerInfo describe_self();

// Formats as "rank 3 (node7, pid 1234)".
std::string describe(int rank, const PeerInfo& peer);

}  // namespace tutti::bootstrap
