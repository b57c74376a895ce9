// How two ends of a connection prove that they know the job's token, before either parses a word of
// what the other says.
//
//     acceptor                          connector
//        | -- Challenge: magic, version, nonce -->  |
//        | <- Hello: who I am, nonce, HMAC -------  |   over "connector", both nonces, all of Hello
//        | -- Verdict: accepted or why not, HMAC -> |   over "acceptor", both nonces, all of
//        Verdict; no HMAC, but zeros, for a connector whose own is wrong
//
// Where Hello says so, both sides then go on with TLS 1.3, whose key is derived from all of this: a
// connection that somebody replays, or joins to another, has another key. Hello names both ends.
//
// The HMAC's key is the job's token for the bootstrap and for whoever watches the job, with the
// incarnation where there is one; else, after the bootstrap, it is derived from that key and the
// identity that rank 0 gave the job, so that two jobs never mistake each other's ports.
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
  watch = 6,  // from no rank
};

enum class Refusal : uint32_t {
  none = 0,
  bad_token = 1,
  wrong_size = 2,  // the Verdict says the right one
  rank_out_of_range = 3,
  duplicate_rank = 4,
  wrong_version = 5,
  not_in_job = 6,  // the rank is no neighbour, or the connection serves no purpose here
  given_up = 7,    // the rank was out of reach, and was taken for dead
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
  uint64_t communicator = 0;  // data connections
  int16_t lane = 0;           // data connections
  uint16_t number = 0;        // data connections: Renewal
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
// The key of the bootstrap: the token, which may be empty, and which start of the job this is
// (Job::incarnation). So ranks of different starts do not know each other's keys.
std::string bootstrap_key(std::string_view token, std::string_view incarnation);
// The key of everything after the bootstrap.
std::string session_key(std::string_view bootstrap_key, const Nonce& job_identity);
// Control::job_name(), by which nobody can guess the key.
std::string name_of_session(std::string_view session_key);

Challenge make_challenge();
Digest prove(std::string_view key, const Challenge& challenge, const Hello& hello);
Digest prove(std::string_view key, const Challenge& challenge, const Hello& hello,
             const Verdict& verdict);
// Of the TLS on a connection on which these two were said.
TlsKey tls_key(std::string_view key, const Challenge& challenge, const Hello& hello);
// In constant time.
bool equal(const Digest& a, const Digest& b);

// Whoever listens there is not of this job: not Tutti, or it does not know the token, or it
// waits for nobody.
class NotThisJob : public Error {
 public:
  NotThisJob(const std::string& what, const ErrorDetail& detail)
      : Error(ErrorCode::bootstrap, what, detail) {}
};

// It is of Tutti, and does not speak this rank's version: which job's it is cannot be known.
class OtherVersion : public Error {
 public:
  OtherVersion(const std::string& what, const ErrorDetail& detail)
      : Error(ErrorCode::bootstrap, what, detail) {}
};

// The connector's side in pieces. All throw Error(bootstrap); `whom` is the acceptor for people
// ("rank 0 at 127.0.0.1:29500").
//
// `bytes` are the first of a message, up to the length of the magic.
void require_magic(std::string_view bytes, const std::string& whom);
// The answer to a challenge: `hello` with version, nonce and proof.
Hello sign_hello(Hello hello, const Challenge& challenge, std::string_view key,
                 const std::string& whom);
// Returns when this rank was accepted by somebody who knows the key. A refusal by one who does not,
// or may not, is NotThisJob or OtherVersion.
void check_verdict(const Verdict& verdict, const Challenge& challenge, const Hello& hello,
                   std::string_view key, const std::string& whom);
// Errors of connecting to `place` ("rank 3 (node7, pid 1234) at 10.0.0.1:40123"): the errno of the
// connect (ETIMEDOUT: in time, timeout; a want of descriptors, which is this process's own: system;
// else connection_lost), and a connection that ended without a verdict (errno, 0 for EOF).
Error connect_error(const std::string& place, int error);
Error closed_in_handshake(const std::string& place, int error);
// TLS did not come about, although both ends have proved that they know the key.
Error meddled_with(const std::string& place);

// All of it, on a connected socket. `hello` says rank, size, purpose and so on. Nothing when the
// other side closed the connection before it gave a verdict: it is not ready yet, or on its way
// out. Throws Error(bootstrap) when refused, when the other side is not Tutti or does not know the
// token, and when the time is up.
ByteStream shake_hands(Fd socket, Hello hello, std::string_view key, const std::string& whom,
                       const Wait& wait);

}  // namespace tutti::bootstrap
