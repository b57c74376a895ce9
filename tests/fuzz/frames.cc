// Fuzzes frames of a control link and their handling: agreements, deaths and aborts, questions and
// answers, ranks' reports about themselves, and the rank table. (control.cc fuzzes the thread that
// handles frames in a job.)
#include <sys/socket.h>

#include <deque>
#include <functional>

#include "base/text.h"
#include "tests/fuzz/target.h"
#include "transport/bootstrap/control/client_table.h"
#include "transport/bootstrap/control/control_frames.h"
#include "transport/bootstrap/control/peer_table.h"
#include "transport/bootstrap/handshake/link.h"
#include "transport/bootstrap/membership/agreement.h"

namespace tutti::bootstrap {

namespace {

constexpr int kRanks = 5;
constexpr int kOwn = 1;

std::string body_of(const std::string& frame) { return frame.substr(sizeof(uint32_t)); }

class Client final : public ControlClient {
 public:
  void on_abort(const Error& error) override { heard_ += std::string_view(error.what()).size(); }
  std::string on_question(int, uint32_t) override { return "here"; }
  void on_answer(int, uint32_t, std::string_view text) override { heard_ += text.size(); }
  void on_connection(int, int, int, ByteStream) override {}
  void on_opened(int, int, ByteStream) override {}

 private:
  size_t heard_ = 0;
};

// One rank of several; the input contains the other ranks' messages.
class Rank final : private AgreementChannel {
 public:
  Rank() {
    clients_.attach(7, {0, 1, 2, 3, 4}, &client_);
    for (const uint32_t number : {1, 2}) {
      const Contribution own{.members = {0, 1, 2, 3, 4}, .flags = 3, .separates = number == 2};
      agreements_.start({7, number}, own, std::chrono::milliseconds(1000),
                        [](const Agreed*, const Error*) {});
    }
  }

  // Equivalent to ControlService::on_frame().
  bool on_frame(std::string_view body) {
    FrameReader frame(body);
    switch (frame.type()) {
      case FrameType::arrival: {
        const PeerInfo peer = get_peer(frame);
        frame.get_text();
        return check(frame, peer);
      }
      case FrameType::table: {
        for (int i = 0; i < 16; ++i) frame.get<uint8_t>();
        frame.get<int32_t>();
        for (const PeerInfo& peer : get_peers(frame, kRanks)) check(frame, peer);
        return frame.ok();
      }
      case FrameType::failure:
        get_error(frame);
        return frame.ok();
      case FrameType::goodbye:
        return hear_end(frame.get<int32_t>(), frame.ok());
      case FrameType::death: {
        Death death{.rank = frame.get<int32_t>()};
        death.by_itself = frame.get<uint8_t>() != 0;
        death.certain = frame.get<uint8_t>() != 0;
        death.text = frame.get_text();
        if (!hear_end(death.rank, frame.ok())) return false;
        clients_.rank_died(death);
        clients_.report_deaths();
        return !death_frame(death).empty();
      }
      case FrameType::abort: {
        const auto communicator = frame.get<uint64_t>();
        const Error error = get_error(frame);
        if (frame.ok()) clients_.abort(communicator, error);
        return frame.ok();
      }
      case FrameType::question:
      case FrameType::answer: {
        const auto communicator = frame.get<uint64_t>();
        const auto from = frame.get<int32_t>();
        frame.get<int32_t>();
        const auto call = frame.get<uint32_t>();
        if (frame.type() == FrameType::answer) {
          clients_.answer(communicator, from, call, frame.get_text());
        } else {
          clients_.question(communicator, from, call);
        }
        return frame.ok();
      }
      case FrameType::agreement:
        frame.get<int32_t>();
        return agreements_.on_frame(frame);
      default:
        return false;
    }
  }

  // Runs deferred actions once.
  void pass_time() {
    std::deque<std::function<void()>> due;
    due.swap(later_);
    for (const std::function<void()>& what : due) what();
  }

 private:
  int own_rank() const override { return kOwn; }
  bool is_rank(int number) const override { return number >= 0 && number < kRanks; }
  std::string name_of(int rank) const override { return cat("rank ", rank); }
  void send_to(int rank, const std::string& frame) override {
    fuzz::require(is_rank(rank), "what is sent is for a rank");
    FrameReader sent(std::string_view(frame).substr(sizeof(uint32_t)));
    fuzz::require(sent.type() == FrameType::agreement, "what is sent is a frame");
  }
  bool has_gone(int rank) const override { return (gone_ >> rank & 1) != 0; }
  bool has_ended(int rank) const override { return has_gone(rank); }
  bool reaches(int rank) const override { return rank != 2; }
  std::string_view host_of(int rank) const override { return rank < 2 ? "one" : "another"; }
  bool may_learn_of_ends() const override { return false; }
  Clock::time_point now() const override { return Clock::now(); }
  void call_after(std::chrono::milliseconds, std::function<void()> what) override {
    later_.push_back(std::move(what));
  }

  bool hear_end(int rank, bool ok) {
    if (!ok || !is_rank(rank)) return false;
    if (rank != kOwn) gone_ |= 1U << rank;
    agreements_.look_again();
    return true;
  }

  // A completely parsed peer is the same after it is written and read again.
  static bool check(const FrameReader& frame, const PeerInfo& peer) {
    if (!frame.ok()) return false;
    FrameWriter writer(FrameType::arrival);
    put(writer, peer);
    const std::string body = body_of(writer.finish());
    FrameReader again(body);
    const PeerInfo read = get_peer(again);
    fuzz::require(again.ok() && read.note == peer.note && read.rails() == peer.rails(),
                  "a peer is read as it was written");
    return true;
  }

  unsigned gone_ = 0;
  std::deque<std::function<void()>> later_;
  Client client_;
  ClientTable clients_{kRanks};
  Agreements agreements_{*this};
};

}  // namespace

}  // namespace tutti::bootstrap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::bootstrap;
  int ends[2];
  tutti::fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0,
                       "there are sockets");
  Link link{tutti::Fd(ends[0])};
  const tutti::Fd other(ends[1]);
  [[maybe_unused]] const ssize_t sent = ::send(other.get(), data, size, MSG_DONTWAIT);
  Rank rank;
  link.receive(
      [&](std::string_view body) {
        bool is_good = false;
        tutti::fuzz::take("", [&] { is_good = rank.on_frame(body); });
        return is_good;
      },
      kMaxFrameBytes);
  rank.pass_time();
  return 0;
}
