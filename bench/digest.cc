#include "bench/digest.h"

#include <openssl/evp.h>

#include <cstring>

#include "base/error.h"

namespace tutti::bench {

Sha256 sha256(std::span<const std::byte> data) {
  Sha256 hash = {};
  unsigned int length = 0;
  const int done =
      ::EVP_Digest(data.data(), data.size(), hash.data(), &length, ::EVP_sha256(), nullptr);
  if (done == 1 && length == hash.size()) return hash;
  throw Error(ErrorCode::unsupported, "cannot compute a SHA-256 hash",
              {.cause = "this OpenSSL does not provide SHA-256",
               .remedy = "remove --digest, or enable SHA-256 in OpenSSL"});
}

std::string hex(const Sha256& hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : hash) text += {kDigits[byte / 16], kDigits[byte % 16]};
  return text;
}

Digest digest(Communicator& comm, const Layout& layout, std::span<const std::byte> output) {
  Sha256 own = {};
  if (!output_parts(layout, comm.rank()).empty()) own = sha256(output);
  std::vector<Sha256> all(comm.size());
  const std::span<uint8_t> bytes(all.front().data(), all.size() * own.size());
  comm.all_gather(const_buffer_of(std::span<const uint8_t>(own)), buffer_of(bytes));
  if (layout.collective == Collective::reduce || layout.collective == Collective::gather) {
    return {.hash = all[layout.root]};
  }
  if (layout.collective != Collective::all_reduce) {
    return {.hash = sha256(std::as_bytes(std::span<const uint8_t>(bytes)))};
  }
  Digest digest{.hash = all.front()};
  for (int rank = 1; rank < comm.size(); ++rank) {
    if (all[rank] != all.front()) digest.other_ranks.push_back(rank);
  }
  return digest;
}

}  // namespace tutti::bench
