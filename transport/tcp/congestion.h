// The choice of congestion control for data connections.
#pragma once

namespace tutti {

// Replaces BBR on a connected bulk-data socket if the round trip takes less than 1 ms. BBR limits
// the sending rate to the rate at which earlier bytes were delivered. A rank that computes or
// encrypts between its messages sends more slowly than the network could. BBR mistakes that rate
// for the network's, and the rank stays slow while its peers wait. Over long distances BBR stays,
// because it is better on lossy networks.
void avoid_pacing(int socket);

}  // namespace tutti
