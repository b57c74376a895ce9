// What rank 0 collects and hands out: everybody's PeerInfo.
#pragma once

#include <vector>

#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/handshake/peer_info.h"

namespace tutti::bootstrap {

void put(FrameWriter& frame, const PeerInfo& peer);
PeerInfo get_peer(FrameReader& frame);
// Of all ranks; of each only what differs from the rank before it.
void put(FrameWriter& frame, const std::vector<PeerInfo>& peers);
std::vector<PeerInfo> get_peers(FrameReader& frame, int size);

// This process, without its addresses. Ranks in one network namespace of one boot of one host can
// share memory.
PeerInfo describe_self();

// "rank 3 (node7, pid 1234)"
std::string describe(int rank, const PeerInfo& peer);

}  // namespace tutti::bootstrap
