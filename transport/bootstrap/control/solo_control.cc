#include "transport/bootstrap/control/solo_control.h"

#include <fcntl.h>

#include <cerrno>

#include "base/condition_wait.h"
#include "base/text.h"
#include "transport/bootstrap/control/peer_table.h"
#include "transport/bootstrap/handshake/handshake.h"

namespace tutti::bootstrap {

namespace {

Fd duplicate(int fd, const std::string& name) {
  Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) throw system_error(cat("duplicate the descriptor of '", name, "'"), errno);
  return copy;
}

void require_self(int rank) {
  if (rank == 0) return;
  throw Error(ErrorCode::invalid_argument,
              cat("rank ", rank, " does not exist in a job of one rank"));
}

}  // namespace

SoloControl::SoloControl()
    : self_(describe_self()), job_name_(name_of_session(to_hex(random_nonce()))) {}

const PeerInfo& SoloControl::peer(int rank) const {
  require_self(rank);
  return self_;
}

void SoloControl::attach(uint64_t communicator, std::vector<int>, ControlClient* client) {
  std::lock_guard lock(mutex_);
  clients_[communicator] = client;
}

void SoloControl::detach(uint64_t communicator) {
  std::lock_guard lock(mutex_);
  clients_.erase(communicator);
}

void SoloControl::poison(uint64_t communicator, const Error& error) {
  std::lock_guard lock(mutex_);
  const auto found = clients_.find(communicator);
  if (found != clients_.end()) found->second->on_abort(error);
}

void SoloControl::ask(uint64_t communicator, int rank, uint32_t call) {
  require_self(rank);
  std::lock_guard lock(mutex_);
  const auto found = clients_.find(communicator);
  if (found == clients_.end()) return;
  found->second->on_answer(0, call, found->second->on_question(0, call));
}

void SoloControl::open_connection(uint64_t, int rank, int, Renewal) {
  require_self(rank);
  throw Error(ErrorCode::invalid_argument, "a rank cannot connect to itself");
}

std::future<AgreementEnd> SoloControl::agree(uint64_t, uint32_t, Contribution contribution,
                                             std::chrono::milliseconds) {
  std::promise<AgreementEnd> promise;
  promise.set_value(Agreed{.flags = contribution.flags, .living = std::move(contribution.members)});
  return promise.get_future();
}

void SoloControl::offer(const std::string& name, int fd) {
  Fd copy = duplicate(fd, name);
  std::lock_guard lock(mutex_);
  offers_[name] = std::move(copy);
  offered_.notify_all();
}

void SoloControl::withdraw(const std::string& name) {
  std::lock_guard lock(mutex_);
  offers_.erase(name);
}

Fd SoloControl::fetch(int rank, const std::string& name, const Deadline& deadline) {
  require_self(rank);
  std::unique_lock lock(mutex_);
  if (!wait_for_condition(offered_, lock, deadline, [&] { return offers_.contains(name); })) {
    throw Error(ErrorCode::timeout, cat("no rank offered '", name, "' in time"));
  }
  return duplicate(offers_.at(name).get(), name);
}

}  // namespace tutti::bootstrap
