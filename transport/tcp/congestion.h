// How a data connection finds out how fast its network is.
#pragma once

namespace tutti {

// For a connected socket that will carry much. Where the system's congestion control is BBR, and
// the other end is near, it takes another: BBR holds bytes back to the speed at which earlier ones
// arrived. A rank that computes, or encrypts, between its messages sends at less than the network's
// speed, which BBR then takes for that speed; the rank reaches it no more, and its peers wait. Far
// away, where it is the better one on networks that lose packets, BBR stays.
void avoid_pacing(int socket);

}  // namespace tutti
