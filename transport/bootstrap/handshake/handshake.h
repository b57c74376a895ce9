// The handshake: both ends of a connection prove that they know the job's token before either
// parses anything else from the other.
//
//     acceptor                                      connector
//        | -- Challenge: magic, version, nonce -->  |
//        | <- Hello: identity, nonce, HMAC -------  |   over "connector", both nonces, all of Hello
//        | -- Verdict: accepted or reason, HMAC ->  |   over "acceptor", both nonces, all of
//                                                       Verdict; zeros for a connector whose own
//                                                       HMAC or version is wrong
//
// If Hello requests TLS 1.3, both sides continue with it. Its key is derived from the HMAC's key,
// Challenge and Hello, so that a replayed or spliced connection has another key. Hello names both
// ends.
//
// In the bootstrap and for observers of the job, the HMAC's key is the job's token and, if there is
// one, the incarnation. After the bootstrap the key is derived from that key and the identity that
// rank 0 gave the job, so that two jobs never accept connections from each other.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "transport/bootstrap/handshake/socket.h"
#include "transport/stream/byte_stream.h"

namespace tutti::bootstrap {

using Nonce = std::array<uint8_t, 16>;
using Digest = std::array<uint8_t, 32>;
using Magic = std::array<char, 8>;

inline constexpr Magic kMagic = {'T', 'U', 'T', 'T', 'I', 0, '\r', '\n'};

enum class Purpose : uint16_t {
  bootstrap = 1,
  control = 2,
  data = 3,
  descriptors = 4,
  relink = 5,
  watch = 6,  // an observer, which is not a rank
};

enum class Refusal : uint32_t {
  none = 0,
  bad_token = 1,
  wrong_size = 2,  // the world sizes differ; the Verdict has the acceptor's
  rank_out_of_range = 3,
  duplicate_rank = 4,
  wrong_version = 5,
  not_in_job = 6,  // the rank is not a neighbour, or the connection has no purpose here
  given_up = 7,    // the rank was unreachable, and was declared dead
};

struct Challenge {
  Magic magic = kMagic;
  uint32_t version = 0;
  uint32_t reserved = 0;
  Nonce nonce = {};
};
static_assert(sizeof(Challenge) == 32);

struct Hello {
  Magic magic = kMagic;
  uint32_t version = 0;
  Purpose purpose = Purpose::bootstrap;
  uint16_t encrypted = 0;  // 1: TLS follows
  int32_t rank = 0;
  int32_t size = 0;
  uint64_t communicator = 0;  // for data connections
  int16_t lane = 0;           // for data connections
  uint16_t number = 0;        // see Renewal; above 0 also for links whose attempts are repeated
  int32_t to = 0;             // the acceptor's rank
  Nonce nonce = {};
  Digest proof = {};
};
static_assert(sizeof(Hello) == 88);

struct Verdict {
  Magic magic = kMagic;
  Refusal refusal = Refusal::none;
  int32_t size = 0;  // the acceptor's world size
  Digest proof = {};
};
static_assert(sizeof(Verdict) == 48);

Nonce random_nonce();
std::string to_hex(const Nonce& nonce);
// Returns the key of the bootstrap, made from the token, which may be empty, and Job::incarnation.
// Different starts of a job have different keys.
std::string bootstrap_key(std::string_view token, std::string_view incarnation);
// Returns the key of all handshakes after the bootstrap.
std::string session_key(std::string_view bootstrap_key, const Nonce& job_identity);
// Returns Control::job_name(), which does not reveal the key.
std::string name_of_session(std::string_view session_key);

Challenge make_challenge();
Digest prove(std::string_view key, const Challenge& challenge, const Hello& hello);
Digest prove(std::string_view key, const Challenge& challenge, const Hello& hello,
             const Verdict& verdict);
// Returns the TLS key of a connection on which this challenge and hello were exchanged.
TlsKey tls_key(std::string_view key, const Challenge& challenge, const Hello& hello);
// Compares in constant time.
bool equal(const Digest& a, const Digest& b);

// Thrown if the listener does not belong to this job: it is not Tutti, does not know the token, or
// answers that this rank is not in its job.
class ForeignListener : public Error {
 public:
  ForeignListener(const std::string& what, const ErrorDetail& detail)
      : Error(ErrorCode::bootstrap, what, detail) {}
};

// Thrown if the listener is Tutti with another protocol version, so that its job cannot be
// determined.
class OtherVersion : public Error {
 public:
  OtherVersion(const std::string& what, const ErrorDetail& detail)
      : Error(ErrorCode::bootstrap, what, detail) {}
};

// The steps of the connector's side. They throw Error(bootstrap) unless noted; `whom` describes the
// acceptor in messages ("rank 0 at 127.0.0.1:29500").
//
// Checks the beginning of a message: `bytes` must match the magic, of which they may be only a
// part.
void require_magic(std::string_view bytes, const std::string& whom);
// Answers a challenge: returns `hello` completed with version, nonce and proof.
Hello sign_hello(Hello hello, const Challenge& challenge, std::string_view key,
                 const std::string& whom);
// Returns if the peer has accepted this rank and has proved that it knows the key. Throws
// ForeignListener if the peer does not know the key or this rank is not in its job, OtherVersion if
// the peer has another protocol version, Error(connection_lost) if this rank was excluded, and
// Error(bootstrap) for other refusals.
void check_verdict(const Verdict& verdict, const Challenge& challenge, const Hello& hello,
                   std::string_view key, const std::string& whom);
// Build errors for connecting to `place` ("rank 3 (node7, pid 1234) at 10.0.0.1:40123").
// connect_error() takes the errno of the connect, and sets the code: timeout for ETIMEDOUT, system
// for a lack of descriptors (a failure of this host), otherwise connection_lost.
// closed_in_handshake() is for a connection that ended without a verdict; its errno is 0 for EOF.
Error connect_error(const std::string& place, int error);
Error closed_in_handshake(const std::string& place, int error);
// Builds the error for a TLS handshake that failed although both ends proved that they know the
// key.
Error meddled_with(const std::string& place);

// Performs the whole handshake on a connected socket. `hello` has all fields that sign_hello() does
// not fill in. Returns an empty stream if the other side closed the connection before the handshake
// was complete, because the other side is not ready yet or is exiting. Throws as sign_hello() and
// check_verdict() do, and Error(bootstrap) if the other side is not Tutti or on timeout.
ByteStream shake_hands(Fd socket, Hello hello, std::string_view key, const std::string& whom,
                       const Wait& wait);

}  // namespace tutti::bootstrap
