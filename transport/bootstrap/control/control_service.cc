// The part of the control channel that callers use; control_thread.cc has the thread.
#include "transport/bootstrap/control/control_service.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/condition_wait.h"
#include "base/descriptor_limit.h"
#include "base/log.h"
#include "base/signals_blocked.h"
#include "base/start_thread.h"
#include "base/text.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

namespace {

// File descriptors for the connections to each other rank, and for this rank itself.
constexpr size_t kDescriptorsPerRank = 4;
constexpr size_t kOwnDescriptors = 128;

Membership bootstrap(const Job& job, const std::string& unix_name) {
  // Further descriptors are left to the program. A later shortage is reported where it occurs.
  reserve_descriptors(kDescriptorsPerRank * static_cast<size_t>(job.size) + kOwnDescriptors);
  return job.rank == 0 ? gather(job, unix_name) : join(job, unix_name);
}

}  // namespace

ControlService::ControlService(const Job& job)
    : pid_(current_process()),
      init_timeout_(job.init_timeout),
      unix_name_("tutti-" + to_hex(random_nonce()).substr(0, 16)),
      encrypts_data_(job.encrypts_data),
      descriptors_(unix_name_, job.size, job.rank),
      membership_(bootstrap(job, unix_name_)),
      job_name_(name_of_session(membership_.key)),
      tree_{.rank = job.rank, .size = job.size, .fanout = membership_.fanout},
      clients_(job.size),
      left_(job.size),
      died_(job.size),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      connector_(membership_.key, job.size, membership_.acceptor.own_addresses()),
      link_connector_(membership_.key, job.size, membership_.acceptor.own_addresses()),
      prober_(membership_.key, job.size, membership_.acceptor.own_addresses()),
      links_(std::move(membership_.links)),
      parent_(tree_.parent()) {
  if (!wake_fd_) throw system_error("eventfd", errno);
  descriptors_.set_session_key(membership_.key);
  start_linking();
  const SignalsBlocked blocked;
  thread_ = std::make_unique<std::thread>(start_thread("the control channel", [this] { serve(); }));
}

ControlService::~ControlService() {
  if (forked()) {
    static_cast<void>(thread_.release());  // the thread exists in the parent only; nothing to join
    return;
  }
  post([this] { leave(); });
  thread_->join();
}

void ControlService::wait_until_linked() {
  std::unique_lock lock(mutex_);
  const bool completed = wait_for_condition(linked_, lock, Deadline::after(init_timeout_),
                                            [this] { return all_linked_ || failure_.has_value(); });
  if (failure_) throw *failure_;
  if (!completed) {
    throw Error(ErrorCode::bootstrap,
                cat(describe(rank()),
                    ": not all of its descendants in the control channel's tree connected within ",
                    std::chrono::duration<double>(init_timeout_).count(), " s"),
                {.cause = "some descendants are stopped, or a firewall blocks a connection",
                 .remedy = "open all TCP ports between the hosts, or set TUTTI_INTERFACE to a "
                           "network that connects them"});
  }
  lock.unlock();
  membership_.stats.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  if (tree_.rank == 0) log_stats();
}

void ControlService::log_stats() const {
  if (!log_enabled(LogLevel::info)) return;
  const InitStats& stats = membership_.stats;
  const auto text = [](const InitStats::Count& count) {
    return cat(count.bytes, " bytes in ", count.messages, " messages");
  };
  log(LogLevel::info, cat("init: ", tree_.size, " ranks in ", stats.seconds, " s; rank 0 sent ",
                          text(stats.sent), ", received ", text(stats.received), ", held at most ",
                          stats.most_held, " connections; all ranks together ", text(stats.all)));
}

void ControlService::require_own_process() const {
  if (!forked()) return;
  throw Error(ErrorCode::unsupported,
              cat("rank ", rank(), "'s communicators belong to process ", pid_, ", not to ",
                  current_process()),
              {.cause = "this process was forked after the rank had joined the job",
               .remedy = "call Tutti in the parent, or fork before init"});
}

void ControlService::post(Command command) {
  {
    std::lock_guard lock(mutex_);
    if (over_) return;  // the command is dropped; waiters on its promise get an error
    commands_.push_back(std::move(command));
  }
  wake();
}

void ControlService::wake() {
  const uint64_t one = 1;
  // The write fails only if so many wakes are pending that one more makes no difference.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_.get(), &one, sizeof(one));
}

Hello ControlService::make_hello(Purpose purpose) const {
  // TLS cannot carry descriptors, and unix sockets stay within the host.
  const bool encrypted = purpose == Purpose::data          ? encrypts_data_
                         : purpose == Purpose::descriptors ? false
                                                           : membership_.encrypted;
  return {.purpose = purpose, .encrypted = encrypted, .rank = tree_.rank, .size = tree_.size};
}

void ControlService::attach(uint64_t communicator, std::vector<int> members,
                            ControlClient* client) {
  require_own_process();
  send_later(clients_.attach(communicator, std::move(members), client));
}

void ControlService::expect_communicator() {
  require_own_process();
  clients_.expect();
}

void ControlService::stop_expecting() {
  if (!forked()) send_later(clients_.stop_expecting());
}

void ControlService::send_later(std::vector<ClientTable::Answer> answers) {
  for (ClientTable::Answer& answer : answers) {
    post([this, answer = std::move(answer)] { send_answer(answer); });
  }
}

void ControlService::detach(uint64_t communicator) {
  if (forked()) return;
  clients_.detach(communicator);
  post([this, communicator] { connector_.drop(communicator); });
}

void ControlService::poison(uint64_t communicator, const Error& error) {
  require_own_process();
  post([this, communicator, error] { flood_abort(communicator, error, -1); });
}

void ControlService::ask(uint64_t communicator, int rank, uint32_t call) {
  require_own_process();
  post([this, communicator, rank, call] {
    if (rank == tree_.rank) return deliver_question(communicator, rank, call);
    route(rank, FrameWriter(FrameType::question)
                    .put(communicator)
                    .put(int32_t{tree_.rank})
                    .put(int32_t{rank})
                    .put(call)
                    .finish());
  });
}

void ControlService::suspect(uint64_t communicator, int rank, std::string text) {
  require_own_process();
  post([this, communicator, rank, text = std::move(text)] {
    suspect_later(communicator, rank, text);
  });
}

void ControlService::open_connection(uint64_t communicator, int rank, int lane, Renewal renewal) {
  require_own_process();
  post([this, communicator, rank, lane, renewal] {
    // No error is reported: the client is notified of deaths, and can query which ranks have left.
    if (!clients_.attached(communicator) || left_[rank] || has_died(rank)) return;
    Hello hello = make_hello(Purpose::data);
    hello.communicator = communicator;
    hello.lane = static_cast<int16_t>(lane);
    hello.number = static_cast<uint16_t>(renewal.number);
    connector_.start(peer(rank), rank, hello, describe(rank), renewal.detours);
  });
}

std::future<AgreementEnd> ControlService::agree(uint64_t communicator, uint32_t number,
                                                Contribution contribution,
                                                std::chrono::milliseconds timeout) {
  require_own_process();
  const auto promise = std::make_shared<std::promise<AgreementEnd>>();
  std::future<AgreementEnd> end = promise->get_future();
  post([this, id = AgreementId{communicator, number}, contribution = std::move(contribution),
        timeout, promise] {
    agreements_.start(id, contribution, timeout,
                      [promise](const Agreed* decision, const Error* error) {
                        if (decision != nullptr) return promise->set_value(*decision);
                        promise->set_value(*error);
                      });
  });
  return end;
}

void ControlService::offer(const std::string& name, int fd) {
  require_own_process();
  descriptors_.offer(name, fd);
  wake();
}

void ControlService::withdraw(const std::string& name) {
  if (!forked()) descriptors_.withdraw(name);
}

Fd ControlService::fetch(int rank, const std::string& name, const Deadline& deadline) {
  require_own_process();
  Hello hello = make_hello(Purpose::descriptors);
  hello.to = rank;
  const auto death = [&] { return has_died(rank) ? deaths() : std::nullopt; };
  return fetch_descriptor(peer(rank).unix_name, name, hello, membership_.key, describe(rank), death,
                          deadline);
}

}  // namespace tutti::bootstrap
