#include "transport/stream/tls.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/network_timeout.h"

namespace tutti {

namespace {

constexpr size_t kRecordBytes = Tls::kRecordBytes;
static_assert(kRecordBytes == SSL3_RT_MAX_PLAIN_LENGTH);
constexpr const char* kIdentity = "tutti";  // the only PSK identity

[[noreturn]] void throw_unusable(const char* what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  ERR_clear_error();
  throw Error(ErrorCode::internal, std::string(what) + ": " + text.data(),
              {.cause = "OpenSSL's configuration on this host does not allow TLS 1.3 with "
                        "TLS_AES_128_GCM_SHA256 and a pre-shared key"});
}

// ---- the socket BIO, because OpenSSL's own raises SIGPIPE

int read_socket(BIO* bio, char* into, int limit) {
  BIO_clear_retry_flags(bio);
  auto& tls = *static_cast<Tls*>(BIO_get_data(bio));
  const ssize_t got = tls.receive_raw(into, static_cast<size_t>(limit));
  if (got < 0 && errno == EAGAIN) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

int write_socket(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  auto& tls = *static_cast<Tls*>(BIO_get_data(bio));
  const ssize_t sent = tls.send_raw(bytes, static_cast<size_t>(size));
  if (sent < 0 && errno == EAGAIN) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

long control_socket(BIO*, int command, long, void*) {  // NOLINT: OpenSSL's types
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* socket_method() {
  static const std::unique_ptr<BIO_METHOD, void (*)(BIO_METHOD*)> method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tutti socket");
    if (made == nullptr) throw_unusable("BIO_meth_new");
    BIO_meth_set_read(made, read_socket);
    BIO_meth_set_write(made, write_socket);
    BIO_meth_set_ctrl(made, control_socket);
    return std::unique_ptr<BIO_METHOD, void (*)(BIO_METHOD*)>(made, BIO_meth_free);
  }();
  return method.get();
}

// ---- the key

unsigned give_key(SSL* ssl, unsigned char* into, unsigned limit) {
  const TlsKey& key = static_cast<Tls*>(SSL_get_app_data(ssl))->key();
  if (limit < key.size()) return 0;
  std::ranges::copy(key, into);
  return static_cast<unsigned>(key.size());
}

unsigned give_client_key(SSL* ssl, const char*, char* identity, unsigned identity_limit,
                         unsigned char* into, unsigned limit) {
  if (identity_limit <= std::strlen(kIdentity)) return 0;
  std::strcpy(identity, kIdentity);
  return give_key(ssl, into, limit);
}

unsigned give_server_key(SSL* ssl, const char* identity, unsigned char* into, unsigned limit) {
  return std::strcmp(identity, kIdentity) == 0 ? give_key(ssl, into, limit) : 0;
}

// Parses a line "LABEL RANDOM SECRET", with numbers in hexadecimal, and keeps the secret if the
// label is CLIENT_TRAFFIC_SECRET_0 or SERVER_TRAFFIC_SECRET_0.
void keep_secret(const SSL* ssl, const char* line) {
  const std::string_view text(line);
  const size_t at = text.rfind(' ') + 1;
  TrafficSecret secret;
  if (text.size() - at != 2 * secret.size()) return;
  for (size_t i = 0; i < secret.size(); ++i) {
    std::from_chars(line + at + 2 * i, line + at + 2 * i + 2, secret[i], 16);
  }
  auto& tls = *static_cast<Tls*>(SSL_get_app_data(ssl));
  if (text.starts_with("CLIENT_TRAFFIC_SECRET_0 ")) tls.keep(TlsSide::connects, secret);
  if (text.starts_with("SERVER_TRAFFIC_SECRET_0 ")) tls.keep(TlsSide::accepts, secret);
  OPENSSL_cleanse(secret.data(), secret.size());
}

SSL_CTX* context() {
  static const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> made = [] {
    std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
    if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256") != 1) {
      throw_unusable("TLS");
    }
    SSL_CTX_set_psk_client_callback(context.get(), give_client_key);
    SSL_CTX_set_psk_server_callback(context.get(), give_server_key);
    SSL_CTX_set_keylog_callback(context.get(), keep_secret);
    // There are no session tickets, because connections are never resumed.
    SSL_CTX_set_num_tickets(context.get(), 0);
    SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
    SSL_CTX_clear_options(context.get(), SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                        SSL_MODE_RELEASE_BUFFERS);
    return context;
  }();
  return made.get();
}

// Returns head and rest joined, up to one record: a head alone would need its own record and system
// call.
std::span<const std::byte> join(std::span<const std::byte> head, std::span<const std::byte> rest,
                                std::array<std::byte, kRecordBytes>& record) {
  const size_t of_head = std::min(head.size(), record.size());
  const size_t of_rest = std::min(rest.size(), record.size() - of_head);
  std::ranges::copy(head.first(of_head), record.begin());
  std::ranges::copy(rest.first(of_rest), record.begin() + of_head);
  return std::span(record).first(of_head + of_rest);
}

}  // namespace

Tls::Tls(int socket, TlsSide side, const TlsKey& key, uint64_t bytes_per_key)
    : socket_(socket),
      side_(side),
      key_(key),
      bytes_per_key_(bytes_per_key),
      ssl_(SSL_new(context()), SSL_free) {
  BIO* const bio = BIO_new(socket_method());
  if (!ssl_ || bio == nullptr) throw_unusable("a TLS connection");
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  if (side == TlsSide::connects) {
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
  }
}

Tls::~Tls() { forget_secrets(); }

void Tls::forget_secrets() {
  OPENSSL_cleanse(key_.data(), sizeof(key_));
  OPENSSL_cleanse(secrets_.data(), sizeof(secrets_));
}

int Tls::shake_hands() {
  ERR_clear_error();
  if (const int result = SSL_do_handshake(ssl_.get()); result != 1) {
    fail(result);
    return ended_ ? ECONNRESET : errno;
  }
  OPENSSL_cleanse(key_.data(), key_.size());
  // A session that was not resumed means that the other side presented a certificate, which was
  // neither requested nor checked.
  return SSL_session_reused(ssl_.get()) == 1 ? 0 : EBADMSG;
}

// Switches from OpenSSL to the record layer for bulk data. At this point OpenSSL has read nothing
// beyond the handshake and has nothing left to send.
void Tls::use_large_records() {
  const TlsSide other = side_ == TlsSide::connects ? TlsSide::accepts : TlsSide::connects;
  writer_ = std::make_unique<RecordWriter>(secret_of(side_), bytes_per_key_);
  reader_ = std::make_unique<RecordReader>(secret_of(other));
  forget_secrets();
  ssl_.reset();
}

ssize_t Tls::receive(void* into, size_t limit) {
  if (reader_) return reader_->receive(socket_, into, limit);
  size_t received = 0;
  while (received < limit) {
    size_t got = 0;
    ERR_clear_error();
    const int result =
        SSL_read_ex(ssl_.get(), static_cast<char*>(into) + received, limit - received, &got);
    if (result != 1) {
      const ssize_t failed = fail(result);
      if (received > 0) break;
      return ended_ ? 0 : failed;
    }
    received += got;
  }
  return static_cast<ssize_t>(received);
}

ssize_t Tls::send(std::span<const std::byte> head, std::span<const std::byte> rest) {
  if (writer_) return writer_->send(socket_, head, rest);
  std::array<std::byte, kRecordBytes> record;
  const size_t total = head.size() + rest.size();
  size_t sent = 0;
  while (sent < total) {
    const std::span<const std::byte> piece = sent < head.size()
                                                 ? join(head.subspan(sent), rest, record)
                                                 : rest.subspan(sent - head.size());
    size_t written = 0;
    ERR_clear_error();
    const int result = SSL_write_ex(ssl_.get(), piece.data(), piece.size(), &written);
    if (result != 1) {
      const ssize_t failed = fail(result);
      if (sent > 0) break;
      return failed;
    }
    sent += written;
    bytes_with_key_ += written;
    if (bytes_with_key_ < bytes_per_key_) continue;
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) bytes_with_key_ = 0;
  }
  return static_cast<ssize_t>(sent);
}

// Returns -1, and sets errno. The first failure is kept, because after it OpenSSL reports other
// reasons, or none.
ssize_t Tls::fail(int result) {
  const int kind = SSL_get_error(ssl_.get(), result);
  ERR_clear_error();
  if (failure_ == 0 && (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)) {
    errno = EAGAIN;
    return -1;
  }
  if (failure_ == 0) failure_ = kind == SSL_ERROR_SYSCALL ? error_ : EBADMSG;
  errno = failure_;
  return -1;
}

ssize_t Tls::receive_raw(char* into, size_t limit) {
  const ssize_t got = ::recv(socket_, into, limit, MSG_DONTWAIT);
  if (got == 0 && is_reset(failure_)) {  // the socket reports a reset only once
    errno = failure_;
    return -1;
  }
  if (got < 0) error_ = errno;
  ended_ = got == 0;
  return got;
}

ssize_t Tls::send_raw(const char* bytes, size_t size) {
  const ssize_t sent = ::send(socket_, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) error_ = errno;
  return sent;
}

}  // namespace tutti
