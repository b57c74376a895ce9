// Control for a job of several ranks: the thread that serves the tree, and the state it shares with
// callers.
//
// Callers post commands and wake the thread; only the thread touches links, timers and the
// acceptor. Callers and the thread share the command queue, the client table, the offers, and the
// flags of ranks that have left or died.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "transport/bootstrap/control/bootstrap.h"
#include "transport/bootstrap/control/client_table.h"
#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/control/descriptor_service.h"
#include "transport/bootstrap/control/process.h"
#include "transport/bootstrap/control/tree.h"
#include "transport/bootstrap/control/watchers.h"
#include "transport/bootstrap/handshake/connector.h"
#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/membership/agreement.h"

namespace tutti::bootstrap {

class ControlService final : public Control, private AgreementChannel {
 public:
  // Joins the job and starts the thread. wait_until_linked() then waits until all ranks below this
  // one in the tree are linked.
  explicit ControlService(const Job& job);
  ~ControlService() override;
  void wait_until_linked();

  bool forked() const override { return current_process() != pid_; }
  const InitStats& init_stats() const override { return membership_.stats; }
  const std::string& job_name() const override { return job_name_; }
  int rank() const override { return tree_.rank; }
  int size() const override { return tree_.size; }
  const PeerInfo& peer(int rank) const override {
    return rank == 0 ? membership_.rank_zero : membership_.peers->at(static_cast<size_t>(rank));
  }
  void attach(uint64_t communicator, std::vector<int> members, ControlClient* client) override;
  void detach(uint64_t communicator) override;
  std::optional<Error> deaths() const override { return clients_.deaths(); }
  void settle_deaths(std::span<const int> ranks) override { clients_.settle_deaths(ranks); }
  void poison(uint64_t communicator, const Error& error) override;
  void ask(uint64_t communicator, int rank, uint32_t call) override;
  int way_to(int rank) const override { return tree_.next_hop(rank, Departed{*this}); }
  bool has_left(int rank) const override { return left_.at(rank).load(); }
  bool has_died(int rank) const override { return died_.at(rank).load(); }
  void suspect(uint64_t communicator, int rank, std::string text) override;
  void open_connection(uint64_t communicator, int rank, int lane, Renewal renewal) override;
  std::future<AgreementEnd> agree(uint64_t communicator, uint32_t number, Contribution contribution,
                                  std::chrono::milliseconds timeout) override;
  void offer(const std::string& name, int fd) override;
  void withdraw(const std::string& name) override;
  Fd fetch(int rank, const std::string& name, const Deadline& deadline) override;

 private:
  using Command = std::function<void()>;
  // Function object that returns true for ranks that have died or left. Thread-safe.
  struct Departed {
    const ControlService& service;
    bool operator()(int rank) const { return service.has_left(rank) || service.has_died(rank); }
  };

  // --- thread-safe
  void expect_communicator() override;
  void stop_expecting() override;
  void send_later(std::vector<ClientTable::Answer> answers);
  void require_own_process() const;
  void log_stats() const;
  void post(Command command);
  void wake();
  Hello make_hello(Purpose purpose) const;

  // --- the control thread: AgreementChannel
  int own_rank() const override { return tree_.rank; }
  bool is_rank(int number) const override { return number >= 0 && number < tree_.size; }
  std::string name_of(int rank) const override { return describe(rank); }
  Clock::time_point now() const override { return Clock::now(); }
  bool may_learn_of_ends() const override { return membership_.launcher.open(); }
  void send_to(int rank, const std::string& frame) override { route(rank, frame); }
  bool has_gone(int rank) const override { return Departed{*this}(rank); }
  bool has_ended(int rank) const override {
    return has_left(rank) || clients_.has_certainly_died(rank);
  }
  bool reaches(int rank) const override { return !unreached_.contains(rank); }
  std::string_view host_of(int rank) const override { return peer(rank).host_id; }
  void call_after(std::chrono::milliseconds delay, std::function<void()> what) override {
    after(delay, std::move(what));
  }

  void serve();
  void turn();
  void run_commands();
  void run_timers();
  void after(std::chrono::milliseconds delay, Command command);
  void watch_connector();
  void watch_links();
  Decision judge(const Hello& hello) const;
  void welcome(const Hello& hello, ByteStream socket);

  void start_linking();
  void connect_link(int rank);
  void watch_linking();
  void tell_linked();
  std::string ranks_beside(int rank) const;
  void on_unreachable(int child, const Error& error);
  bool all_linked_below(int child) const;
  void connect_cut_off(int child);
  void tell_cut_off(Link link) const;

  void relink();
  bool is_lost(int neighbour) const;
  void connect_parent(int rank);
  bool renew(int neighbour, const std::string& how);
  void look_for_children_later();
  void look_for_children();
  void found_child(int rank);
  void adopt(int rank, ByteStream socket);
  void tell_all_known(Link& link);
  bool is_given_up(int rank) const;
  bool disputes(const Death& death, int teller);
  void settle_dispute_later(int accused, int teller);
  bool is_linked(int rank) const;

  void on_link(int neighbour, short revents);
  bool on_frame(int neighbour, std::string_view body);
  // Handles a frame addressed to this rank; `frame` is positioned after the address field.
  bool take_frame(FrameReader& frame);
  void flood(const std::string& frame, int except = -1);
  void flood_goodbye(int rank, int except);
  void flood_abort(uint64_t communicator, const Error& error, int except);
  void route(int to, const std::string& frame);
  void deliver_question(uint64_t communicator, int from, uint32_t call);
  void send_answer(const ClientTable::Answer& answer);
  void suspect_later(uint64_t communicator, int rank, const std::string& text);
  void probe(int rank);
  void take_as_reached(int rank);

  void on_link_end(int neighbour);
  void on_break(int rank, const std::string& how);
  void on_launcher_line(const RankEnd& end);
  bool cut_off_from(int rank) const;
  void declare_end(const RankEnd& end);
  void record_death(const Death& death, int told_by);
  void report_deaths();

  void leave();
  bool finished() const;
  void part();

  const pid_t pid_;
  const Clock::time_point started_ = Clock::now();
  const std::chrono::nanoseconds init_timeout_;
  const std::string unix_name_;
  const bool encrypts_data_;
  DescriptorService descriptors_;
  Membership membership_;
  const std::string job_name_;
  Tree tree_;
  ClientTable clients_;
  // These flags are outside the client table, because clients query them under their own locks,
  // while the table calls clients under its lock.
  std::vector<std::atomic<bool>> left_;
  std::vector<std::atomic<bool>> died_;
  Fd wake_fd_;

  std::mutex mutex_;
  std::condition_variable linked_;
  std::vector<Command> commands_;
  bool all_linked_ = false;
  std::optional<Error> failure_;  // occurred before all ranks were linked
  bool over_ = false;             // true: the control thread runs no further commands

  // Used by the control thread only.
  PollSet set_;
  Connector connector_;       // for data connections
  Connector link_connector_;  // for links to other ranks
  Connector prober_;          // for probes, which only test whether a rank is reachable
  enum class Probe : uint8_t { in_flight, failed };
  std::map<int, Probe> probes_;    // by rank: the last probe, unless it succeeded
  std::set<int> unreached_;        // living ranks to which data connections and probes fail
  std::map<int, int> detours_;     // by neighbour: number of links to it that went silent
  std::map<int, int> breaks_;      // by neighbour: number of broken links that it may re-establish
  std::set<int> linked_children_;  // children that reported "linked"
  std::set<int> cut_off_;          // ranks below a child that died early, until they are notified
  std::map<int, Link> links_;      // to all neighbours, including ranks that moved here
  std::set<int> moved_here_;       // ranks that reconnected to this one as their parent
  int parent_ = -1;                // -1: none; links_ has the link to it
  std::set<int> sought_;           // ranks that should have moved here, and are being contacted
  bool looks_for_children_ = false;
  // Goodbyes and aborts flooded so far, for ranks that move here. Deaths are in clients_.
  std::set<int> goodbyes_;
  std::deque<std::pair<uint64_t, std::string>> aborts_;  // the latest ones; .first: communicator
  std::vector<std::pair<Clock::time_point, Command>> timers_;
  std::map<int, RankEnd> ends_;  // reported by the launcher
  Agreements agreements_{*this};
  Watchers watchers_{
      *this,
      clients_,
      {[this](int rank, const std::string& frame) { route(rank, frame); },
       [this](std::chrono::milliseconds delay, Command what) { after(delay, std::move(what)); }}};
  bool gathering_deaths_ = false;  // clients will be notified shortly
  std::optional<Clock::time_point> leave_by_;

  std::unique_ptr<std::thread> thread_;
};

}  // namespace tutti::bootstrap
