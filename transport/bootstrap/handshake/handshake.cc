#include "transport/bootstrap/handshake/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/descriptor_limit.h"
#include "base/error.h"
#include "base/text.h"
#include "transport/message.h"

namespace tutti::bootstrap {

namespace {

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

Digest hmac(std::string_view key, const std::string& text) {
  Digest digest{};
  unsigned length = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  if (::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), data, text.size(),
             digest.data(), &length) == nullptr) {
    throw Error(ErrorCode::internal, "HMAC-SHA256 failed",
                {.cause = "libcrypto does not offer SHA-256 here"});
  }
  return digest;
}

[[noreturn]] void throw_refused(const Hello& hello, const Verdict& verdict,
                                const std::string& whom) {
  const std::string what = cat(whom, " refused this rank: ");
  switch (verdict.refusal) {
    case Refusal::bad_token:
      throw ForeignListener(
          what + "the two have different tokens",
          {.cause = "the address belongs to another job or to an earlier start of "
                    "this one, or TUTTI_TOKEN differs",
           .remedy = "give all ranks of a job the same TUTTI_TOKEN and another job "
                     "another MASTER_PORT"});
    case Refusal::wrong_size:
      throw Error(ErrorCode::bootstrap,
                  cat(what, "this rank expects a world of ", hello.size, " ranks, ", whom,
                      " expects ", verdict.size),
                  {.remedy = "start all ranks with the same WORLD_SIZE"});
    case Refusal::rank_out_of_range:
      throw Error(ErrorCode::bootstrap,
                  cat(what, "RANK=", hello.rank, " is not in the range 0 to ", verdict.size - 1));
    case Refusal::duplicate_rank:
      throw Error(ErrorCode::bootstrap, cat(what, "rank ", hello.rank, " is already connected"),
                  {.cause = "two processes were started with the same RANK, or two jobs use the "
                            "same address",
                   .remedy = "give every process its own RANK and every job its own MASTER_PORT"});
    case Refusal::wrong_version:
      throw OtherVersion(
          cat(what, whom, " does not support this rank's wire version ", kWireVersion),
          {.remedy = "start all ranks with the same version of Tutti"});
    case Refusal::given_up:
      throw Error(ErrorCode::connection_lost,
                  cat(what, "this rank was unreachable, and was excluded"));
    default:
      throw ForeignListener(what + "the process at that address is not in this job",
                            {.cause = "another rank or another job now uses that address",
                             .remedy = "choose another MASTER_PORT (on all ranks)"});
  }
}

enum class Answer { complete, closed };

// Reads the acceptor's next message. Throws ForeignListener if it does not begin with this
// protocol's magic, because another program listens there.
Answer read_answer(int socket, std::span<std::byte> into, const std::string& whom,
                   const Wait& wait) {
  std::span<std::byte> magic = into.first(kMagic.size());
  // The magic is read byte by byte, because another program may send fewer bytes and then wait.
  for (size_t i = 0; i < magic.size(); ++i) {
    switch (read_exactly(socket, magic.subspan(i, 1), wait)) {
      case Transfer::closed:
        return Answer::closed;
      case Transfer::timed_out:
        throw Error(ErrorCode::bootstrap,
                    whom + " accepted the connection but sent nothing in time",
                    {.cause = "that rank has not called init yet or is stopped, or another program "
                              "listens there",
                     .remedy = "check that rank's output, MASTER_ADDR and MASTER_PORT"});
      case Transfer::complete:
        break;
    }
    require_magic({reinterpret_cast<const char*>(magic.data()), i + 1}, whom);
  }
  const Transfer rest = read_exactly(socket, into.subspan(magic.size()), wait);
  if (rest == Transfer::timed_out) {
    throw Error(ErrorCode::bootstrap, whom + " stalled during the handshake");
  }
  return rest == Transfer::complete ? Answer::complete : Answer::closed;
}

}  // namespace

Nonce random_nonce() {
  Nonce nonce;
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    throw system_error("getrandom", errno);
  }
  return nonce;
}

std::string to_hex(const Nonce& nonce) {
  std::string text;
  for (const uint8_t byte : nonce) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string bootstrap_key(std::string_view token, std::string_view incarnation) {
  if (incarnation.empty()) return std::string(token);
  return std::string(bytes_of(hmac(token, cat("incarnation", incarnation))));
}

std::string session_key(std::string_view bootstrap_key, const Nonce& job_identity) {
  return std::string(bytes_of(hmac(bootstrap_key, cat("session", bytes_of(job_identity)))));
}

std::string name_of_session(std::string_view session_key) {
  const Digest digest = hmac(session_key, "name");
  Nonce name{};
  std::copy_n(digest.begin(), name.size(), name.begin());
  return to_hex(name).substr(0, 16);
}

Challenge make_challenge() { return {.version = kWireVersion, .nonce = random_nonce()}; }

Digest prove(std::string_view key, const Challenge& challenge, const Hello& hello) {
  Hello claim = hello;
  claim.proof = {};
  return hmac(key, cat("connector", bytes_of(challenge), bytes_of(claim)));
}

Digest prove(std::string_view key, const Challenge& challenge, const Hello& hello,
             const Verdict& verdict) {
  Verdict claim = verdict;
  claim.proof = {};
  return hmac(key, cat("acceptor", bytes_of(challenge), bytes_of(hello.nonce), bytes_of(claim)));
}

TlsKey tls_key(std::string_view key, const Challenge& challenge, const Hello& hello) {
  return hmac(key, cat("tls", bytes_of(challenge), bytes_of(hello)));
}

bool equal(const Digest& a, const Digest& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void require_magic(std::string_view bytes, const std::string& whom) {
  if (std::string_view(kMagic.data(), kMagic.size()).starts_with(bytes)) return;
  throw ForeignListener(whom + " is not Tutti: its answer has another format",
                        {.cause = "another program listens on that port",
                         .remedy = "choose another MASTER_PORT (on all ranks)"});
}

Hello sign_hello(Hello hello, const Challenge& challenge, std::string_view key,
                 const std::string& whom) {
  if (challenge.version != kWireVersion) {
    throw OtherVersion(
        cat(whom, " uses wire version ", challenge.version, ", this rank ", kWireVersion),
        {.remedy = "start all ranks with the same version of Tutti"});
  }
  hello.version = kWireVersion;
  hello.nonce = random_nonce();
  hello.proof = prove(key, challenge, hello);
  return hello;
}

void check_verdict(const Verdict& verdict, const Challenge& challenge, const Hello& hello,
                   std::string_view key, const std::string& whom) {
  // An acceptor that refuses for one of these reasons cannot prove anything.
  const bool proves_nothing =
      verdict.refusal == Refusal::bad_token || verdict.refusal == Refusal::wrong_version;
  if (proves_nothing || equal(verdict.proof, prove(key, challenge, hello, verdict))) {
    if (verdict.refusal == Refusal::none) return;
    throw_refused(hello, verdict, whom);
  }
  throw ForeignListener(whom + " does not know this job's token",
                        {.cause = "another job or another program listens on that address",
                         .remedy = "give all ranks of a job the same TUTTI_TOKEN"});
}

Error connect_error(const std::string& place, int error) {
  if (is_descriptor_shortage(error)) return descriptor_shortage(cat("connect to ", place), error);
  if (error == ETIMEDOUT) {
    return Error(ErrorCode::timeout, cat("no connection to ", place, " in time"),
                 {.cause = "a firewall blocks the connection, or the host is down",
                  .remedy = "open all TCP ports between the hosts, or set TUTTI_INTERFACE to a "
                            "network that connects them"});
  }
  return Error(ErrorCode::connection_lost,
               cat("connect to ", place, ": ", std::strerror(error), " (errno ", error, ")"),
               {.cause = "that rank has ended, or its address is unreachable from this host",
                .remedy = "check its output; TUTTI_INTERFACE selects the network"});
}

Error closed_in_handshake(const std::string& place, int error) {
  return Error(ErrorCode::connection_lost,
               cat("the connection to ", place, " ended in the handshake: ", explain_close(error)),
               {.cause = "that rank is leaving the job or has ended"});
}

Error meddled_with(const std::string& place) {
  return Error(ErrorCode::bootstrap, cat("the TLS handshake with ", place, " failed"),
               {.cause = "a device between the two hosts modifies their traffic",
                .remedy = "look for a proxy or firewall that intercepts connections"});
}

ByteStream shake_hands(Fd socket, Hello hello, std::string_view key, const std::string& whom,
                       const Wait& wait) {
  Challenge challenge;
  if (read_answer(socket.get(), std::as_writable_bytes(std::span(&challenge, 1)), whom, wait) ==
      Answer::closed) {
    return {};
  }
  hello = sign_hello(hello, challenge, key, whom);
  Verdict verdict;
  const std::span logged = std::as_bytes(std::span(&hello, 1));
  if (write_exactly(socket.get(), logged, wait) != Transfer::complete ||
      read_answer(socket.get(), std::as_writable_bytes(std::span(&verdict, 1)), whom, wait) ==
          Answer::closed) {
    return {};
  }
  check_verdict(verdict, challenge, hello, key, whom);
  ByteStream stream(std::move(socket));
  if (hello.encrypted == 0) return stream;
  stream.encrypt(TlsSide::connects, tls_key(key, challenge, hello));
  int error = stream.shake_hands();
  while (error == EAGAIN && wait_for(stream.get(), POLLIN, wait)) error = stream.shake_hands();
  if (error == EAGAIN) {
    throw Error(ErrorCode::bootstrap, whom + " stalled during the handshake");
  }
  if (error == EBADMSG) throw meddled_with(whom);
  return error == 0 ? std::move(stream) : ByteStream();
}

}  // namespace tutti::bootstrap
