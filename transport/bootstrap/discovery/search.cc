#include "transport/bootstrap/discovery/search.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/descriptor_limit.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/bootstrap/discovery/meeting.h"
#include "transport/bootstrap/handshake/handshake.h"

namespace tutti::bootstrap {

namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kSayWhatIsMissing{10};
// Delay before reporting that another program answers in rank 0's place.
constexpr std::chrono::seconds kSayWhoIsThere{1};
// Pauses between attempts: rank 0 may be ready in a moment, or start much later.
constexpr milliseconds kFirstPause{1};
constexpr milliseconds kLongestPause{100};
constexpr milliseconds kAttempt{3000};
// Time for the handshake; if there are several ports, the time begins with the first byte. It
// doubles after each attempt that took longer, because rank 0 may be busy, or might not have called
// init yet.
constexpr milliseconds kFirstHandshake{3000};
constexpr milliseconds kFirstHandshakePerRank{20};
// Time for a listener on one of several ports to send its first byte. Another program may never do
// so, but rank 0 may only be busy, so the time doubles after each round over all ports.
constexpr milliseconds kFirstAnswerTime{100};

// Exponential backoff between attempts: pauses grow by a factor of 1.25 up to kLongestPause. So
// rank 0 is noticed at most one pause late, which in the long run is at most about a fifth of the
// time waited so far.
class Pauses {
 public:
  void make(const Wait& until) {
    const auto pause = std::min<std::chrono::microseconds>(next_, until.deadline.remaining());
    wait_for(-1, 0, {Deadline::after(pause), until.event_source});
    next_ = std::min<std::chrono::microseconds>(next_ * 5 / 4, kLongestPause);
  }

 private:
  std::chrono::microseconds next_ = kFirstPause;
};

class Search {
 public:
  Search(const Job& job, const Wait& wait) : job_(job), wait_(wait), token_(job.token) {}

  RankZero run() {
    bool logged = false;
    Pauses pauses;
    while (!wait_.deadline.passed()) {
      if (ByteStream socket = try_once()) return {std::move(socket), key()};
      if (!logged && say_at_.passed()) {
        log(LogLevel::warning, "still looking for rank 0: " + (met_.empty() ? problem_ : met_));
        logged = true;
      }
      pauses.make(wait_);
    }
    throw_not_found();
  }

 private:
  std::string key() const { return bootstrap_key(token_, job_.incarnation); }

  [[noreturn]] void throw_not_found() const {
    const std::string what = cat("rank ", job_.rank, " did not find rank 0 within ",
                                 std::chrono::duration<double>(job_.init_timeout).count(), " s: ");
    if (!met_.empty()) throw Error(ErrorCode::bootstrap, what + met_);
    throw Error(ErrorCode::bootstrap, what + problem_,
                {.cause = "rank 0 was not started, exited early, or is unreachable from this host",
                 .remedy = "check the output of rank 0, MASTER_ADDR and MASTER_PORT; raise "
                           "TUTTI_INIT_TIMEOUT if rank 0 needs more time"});
  }

  std::vector<SocketAddress> addresses() {
    if (!rendezvous_) {
      return on_all_ports(job_,
                          resolve_master(job_.master_address, job_.master_port, job_.interface));
    }
    if (const auto value = rendezvous_->get(kRankZeroKey)) {
      if (job_.token_by_rendezvous) token_ = token_in_rank_zero(*value);
      return {parse_rank_zero(*value)};
    }
    problem_ = rendezvous_->name() + " does not have rank 0's address yet";
    return {};
  }

  ByteStream try_once() {
    std::vector<SocketAddress> candidates;
    try {
      candidates = addresses();
    } catch (const Error& error) {  // the name may become resolvable later
      problem_ = error.what();
    }
    for (const SocketAddress& address : candidates) {
      Fd socket;
      const int error = try_connect(address, at_most(kAttempt), socket);
      if (is_descriptor_shortage(error)) throw connect_error(rank_zero_at(address), error);
      if (error != 0) {
        problem_ =
            cat("connect to ", address.text(), ": ", std::strerror(error), " (errno ", error, ")");
      } else if (ByteStream greeted = greet(std::move(socket), address)) {
        return greeted;
      }
    }
    answer_time_ = std::min(2 * answer_time_, kAttempt);
    return {};
  }

  ByteStream greet(Fd socket, const SocketAddress& address) {
    const std::string whom = rank_zero_at(address);
    if (job_.master_ports > 1 && !wait_for(socket.get(), POLLIN, at_most(answer_time_))) {
      if (met_.empty()) {  // a refusal is more informative
        met_ =
            whom +
            " accepted the connection but sent nothing; likely cause: another program listens on "
            "that port";
      }
      return {};
    }
    const Wait attempt = at_most(handshake_);
    try {
      const Hello hello{.purpose = Purpose::bootstrap,
                        .encrypted = !token_.empty(),
                        .rank = job_.rank,
                        .size = job_.size};
      if (ByteStream stream = shake_hands(std::move(socket), hello, key(), whom, attempt)) {
        return stream;
      }
      problem_ = cat(address.text(), " closed the connection without an answer");
    } catch (const ForeignListener& error) {
      // If there are several ports, other programs are expected on some.
      if (met_.empty() && job_.master_ports == 1) say_at_ = Deadline::after(kSayWhoIsThere);
      met_ = error.what();
    } catch (const OtherVersion& error) {
      if (job_.master_ports == 1) throw;
      met_ = error.what();
    } catch (const Error& error) {
      if (!attempt.deadline.passed()) throw;  // rank 0 refuses this rank
      handshake_ *= 2;
      if (met_.empty()) met_ = error.what();  // a refusal is more informative
    }
    return {};
  }

  Wait at_most(milliseconds time) const {
    return {Deadline::after(std::min(time, wait_.deadline.remaining())), wait_.event_source};
  }

  const Job& job_;
  const std::shared_ptr<Rendezvous> rendezvous_ = rendezvous_of(job_);
  const Wait wait_;
  std::string token_;
  milliseconds answer_time_ = kFirstAnswerTime;
  milliseconds handshake_ = kFirstHandshake + job_.size * kFirstHandshakePerRank;
  Deadline say_at_ = Deadline::after(kSayWhatIsMissing);
  std::string problem_ = "no attempt was made";
  std::string met_;  // describes the program that answered in rank 0's place; empty: none
};

}  // namespace

std::string rank_zero_at(const SocketAddress& address) { return "rank 0 at " + address.text(); }

RankZero find_rank_zero(const Job& job, const Wait& wait) { return Search(job, wait).run(); }

}  // namespace tutti::bootstrap
