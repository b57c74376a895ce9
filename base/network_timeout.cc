#include "base/network_timeout.h"

#include <algorithm>
#include <cerrno>

#include "base/settings.h"

namespace tutti {

std::chrono::milliseconds network_timeout() {
  constexpr std::chrono::seconds kLeast{2};
  constexpr std::chrono::hours kMost{24};  // used if the setting has no limit
  const auto configured = settings().get_duration("TUTTI_NETWORK_TIMEOUT");
  if (configured == configured.zero() || configured > kMost) return kMost;
  return std::max<std::chrono::milliseconds>(
      kLeast, std::chrono::duration_cast<std::chrono::milliseconds>(configured));
}

bool is_silence(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN ||
         error == EHOSTDOWN;
}

bool is_reset(int error) { return error == ECONNRESET || error == ECONNABORTED; }

}  // namespace tutti
