// Used in builds without Intel's Multi-Buffer Crypto for IPsec.
#include "transport/stream/gcm.h"

namespace tutti {

std::unique_ptr<Gcm> Gcm::make_ipsec_mb(const Key&) { return nullptr; }

}  // namespace tutti
