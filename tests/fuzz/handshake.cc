// Fuzzes both sides of the handshake. The first byte selects the side, and whether the rest is
// signed with the job's key. Without signed inputs, data after the proof would never be parsed.
#include "transport/bootstrap/handshake/handshake.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <span>

#include "base/text.h"
#include "tests/fuzz/target.h"
#include "transport/bootstrap/handshake/acceptor.h"
#include "transport/bootstrap/handshake/poll_set.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

namespace {

constexpr int kRanks = 4;
constexpr std::string_view kKey = "the key";
enum Choice : uint8_t { kConnects = 1, kSigned = 2 };

template <typename T>
T message_of(std::string_view& bytes) {
  T message{};
  const size_t size = std::min(bytes.size(), sizeof(T));
  std::memcpy(static_cast<void*>(&message), bytes.data(), size);
  bytes.remove_prefix(size);
  return message;
}

void send_bytes(int socket, std::string_view bytes) {
  [[maybe_unused]] const ssize_t sent =
      ::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Sends bytes to an acceptor, possibly after a correct answer to its challenge.
class Door {
 public:
  Door() : acceptor_(listen_on(address_), std::string(kKey), kRanks) {
    acceptor_.set_session_key(std::string(kKey));
  }

  void knock(std::string_view bytes, bool is_signed) {
    Fd socket;
    const Deadline deadline = Deadline::after(std::chrono::seconds(10));
    fuzz::require(try_connect(address_, deadline, socket) == 0, "the acceptor listens");
    turn();
    Challenge challenge;
    fuzz::require(read_exactly(socket.get(), std::as_writable_bytes(std::span(&challenge, 1)),
                               deadline) == Transfer::complete,
                  "the acceptor begins");
    if (is_signed && bytes.size() >= sizeof(Hello)) {
      auto hello = message_of<Hello>(bytes);
      hello.proof = prove(kKey, challenge, hello);
      send_bytes(socket.get(), {reinterpret_cast<const char*>(&hello), sizeof hello});
    }
    send_bytes(socket.get(), bytes);
    turn();
    socket.reset();
    turn();
  }

 private:
  void turn() {
    PollSet set;
    acceptor_.watch(
        set,
        [](const Hello& hello) {
          fuzz::require(hello.rank >= 0 && hello.rank < kRanks, "only ranks are judged");
          return static_cast<Decision>(hello.rank);
        },
        [](const Hello& hello, ByteStream) {
          fuzz::require(hello.size == kRanks, "only ranks of the job are welcome");
        });
    set.wake_at(Clock::now());
    set.run();
  }

  const SocketAddress address_ = unix_address(cat("tutti-fuzz-", ::getpid()));
  Acceptor acceptor_;
};

void connect_to(std::string_view bytes, bool is_signed) {
  const Hello hello{.rank = 1, .size = kRanks};
  if (is_signed) {
    const auto challenge = message_of<Challenge>(bytes);
    const Hello said = sign_hello(hello, challenge, kKey, "rank 0");
    auto verdict = message_of<Verdict>(bytes);
    verdict.proof = prove(kKey, challenge, said, verdict);
    return check_verdict(verdict, challenge, said, kKey, "rank 0");
  }
  int ends[2];
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0,
                "there are sockets");
  Fd own(ends[0]);
  const Fd other(ends[1]);
  send_bytes(other.get(), bytes);
  ::shutdown(other.get(), SHUT_WR);
  shake_hands(std::move(own), hello, kKey, "rank 0", Deadline::after(std::chrono::seconds(10)));
}

}  // namespace

}  // namespace tutti::bootstrap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::bootstrap;
  tutti::fuzz::Choices choices(tutti::fuzz::text_of(data, size));
  const uint8_t choice = choices.byte();
  const bool is_signed = (choice & kSigned) != 0;
  if ((choice & kConnects) != 0) {
    tutti::fuzz::take("rank 0", [&] { connect_to(choices.rest(), is_signed); });
  } else {
    static Door door;
    tutti::fuzz::take("", [&] { door.knock(choices.rest(), is_signed); });
  }
  return 0;
}
