// The inside of a communicator: calls in, progress, waiting, and what happens when a peer does not
// come. Public face: communicator.h.
//
// Collectives run one after the other, in the order in which they were called; each pair of ranks
// has a point-to-point stream in each direction beside them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/abort.h"
#include "collectives/communicator.h"
#include "collectives/program/algorithm.h"
#include "collectives/runtime/backoff.h"
#include "collectives/runtime/engine.h"
#include "collectives/runtime/flight_recorder.h"
#include "collectives/runtime/operation.h"
#include "collectives/runtime/plans.h"
#include "topology/domain.h"
#include "transport/bootstrap/control.h"
#include "transport/paths/paths.h"
#include "transport/transport.h"

namespace tutti::internal {

class CommunicatorImpl final : public ControlClient,
                               public std::enable_shared_from_this<CommunicatorImpl> {
 public:
  // Collective among `members` (world ranks; position = rank here).
  CommunicatorImpl(std::shared_ptr<Engine> engine, uint64_t id, std::vector<int> members, int rank);
  ~CommunicatorImpl() override;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  std::string transport_name() const { return paths_ ? std::string(paths_->name()) : "none"; }
  std::string describe(int rank) const { return engine_->control().describe(members_[rank]); }
  const InitStats& init_stats() const { return engine_->control().init_stats(); }
  std::shared_ptr<CommunicatorImpl> split(int color, int key);
  void abort(const std::string& reason);
  // How the ranks reach each other; null where there is only one.
  Paths* paths() { return paths_.get(); }

  std::shared_ptr<const PreparedCall> prepare(const Request& request, const CallOptions& options);
  // Null when the call is complete at once.
  std::shared_ptr<Operation> start(const Request& request, const CallOptions& options);
  std::shared_ptr<Operation> start(const PreparedCall& prepared);
  // Start and wait.
  void run(const Request& request, const CallOptions& options);
  void run(const PreparedCall& prepared);

  // Moves what can be moved; true if anything did. Any thread; false if another one is at it.
  bool progress();
  // Both throw what the communicator was aborted with, and only when no other thread can still
  // touch the call's buffers, nor another rank take what it reads there for the call's. `patience`
  // belongs to the caller's handle on the call.
  bool test(Operation& operation, Patience& patience);
  // False when `deadline` passed first.
  bool wait(Operation& operation, const Deadline& deadline, Patience& patience);

  // For whoever sleeps on it (Engine::sleep): all under the mutex.
  std::unique_lock<std::mutex> try_lock() { return std::unique_lock(mutex_, std::try_to_lock); }
  int calls_under_way() const { return static_cast<int>(collectives_.size()) + p2p_active_; }
  Transport* transport() { return transport_; }  // null where there is only one rank
  // True if anything moved, or somebody wants the mutex.
  bool stirs_locked() { return callers_.load() > 0 || abort_.raised() || progress_locked(); }

  // ControlClient
  void on_abort(const Error& error) override;
  std::string on_question(int asker, uint32_t call) override;
  void on_answer(int rank, uint32_t call, std::string_view answer) override;
  void on_connection(int rank, int lane, Fd socket) override;
  void on_opened(int rank, int lane, Fd socket) override;

 private:
  struct Stream {                   // point-to-point calls with one peer in one direction
    std::vector<Operation*> calls;  // the first one runs
    Execution execution;
    uint32_t made = 0;
    std::unique_ptr<Plan> plan;  // made at the first call
  };
  struct OwnMessage {  // sent to this rank by itself, and not received yet
    std::array<uint64_t, 2> signature = {};
    std::vector<std::byte> payload;
  };
  // What the outline of a call depends on, buffers' addresses not among it.
  struct CallKey {
    uint64_t input_count = 0;
    uint64_t output_count = 0;
    uint64_t rest = 0;
    int root = 0;
    bool operator==(const CallKey&) const = default;
  };
  struct KeptOutline {
    CallKey key;
    std::string algorithm;  // CallOptions::algorithm
    std::shared_ptr<const Outline> outline;
  };
  static constexpr int kKeptBits = 7;
  // What a stalled wait has learned of a peer.
  struct PeerState {
    bool made_call = false;
    uint32_t last_call = 0;
    Signature signature;
    std::vector<int> waits_for;
    bool destroyed = false;  // its communicator; it will never call again
  };

  // setup.cc
  void open_transport();
  void close_transport();
  Paths::Events path_events();
  int member(int world_rank) const;
  std::vector<Place> places() const;

  // calls.cc
  static CallKey key_of(const Request& request, const CallOptions& options);
  static size_t slot_of(const CallKey& key);
  const std::shared_ptr<const Outline>& outline_of(const Request& request,
                                                   const CallOptions& options);
  std::shared_ptr<const Outline> make_outline(Request request, const CallOptions& options);
  void outline_send_recv(const Request& request, Outline& outline);
  void outline_collective(Request& request, const CallOptions& options, Outline& outline);
  const Algorithm& algorithm_for(const Request& request, const CallOptions& options);

  // start.cc
  PreparedCall plan(const Request& request, const CallOptions& options);
  const std::shared_ptr<Operation>& take_operation();
  const std::shared_ptr<Operation>& start_locked(PreparedCall&& prepared);
  const std::shared_ptr<Operation>& start_alone(PreparedCall&& prepared);
  const std::shared_ptr<Operation>& enqueue(PreparedCall&& prepared);
  void send_to_self(const PreparedCall& prepared);
  void receive_from_self(const Outline& receive, std::byte* output,
                         const std::array<uint64_t, 2>& sent, std::span<const std::byte> payload);
  std::shared_ptr<Operation> set_off(const std::shared_ptr<Operation>& operation);
  void announce(Operation& operation);
  void record_start(Operation& operation);
  void record_end(const Operation& operation);
  void finish(const std::shared_ptr<Operation>& operation, std::unique_lock<std::mutex> lock);

  // communicator_impl.cc
  std::unique_lock<std::mutex> lock_for_call();
  bool progress_locked();
  bool progress_streams();
  bool advance(Operation& operation, Execution& execution);
  void complete(Operation& operation);
  void abandon_calls();
  void require_own_process() const;
  [[noreturn]] void refuse_forked_child() const;
  void report_unexpected(const Operation& operation, const Unexpected& message);
  void raise_mismatch(uint32_t call, const Signature& mine, int peer, uint32_t their_call,
                      const Signature& theirs);
  void raise_everywhere(const Error& error);
  void raise_consequence(const Error& error);
  void tell_last_calls(ErrorCode code) const;

  // waiting.cc
  [[noreturn]] void throw_abort();
  void look_at_stall(Operation& operation, Patience& patience);
  void end_stall(Patience& patience);
  std::vector<int> missing(const Operation& operation);
  std::vector<Want> wants(const Operation& operation);
  void ask_peers(const Operation& operation, bool again);
  void check_answers(const Operation& operation);
  void check_gone(const Operation& operation);
  void raise_gone(const Operation& operation, int peer, std::string_view how);
  void time_out(const Operation& operation);
  std::string explain_missing(const Operation& operation);

  const std::shared_ptr<Engine> engine_;
  const uint64_t id_;
  const std::vector<int> members_;
  const int rank_;
  const int exceptions_ = std::uncaught_exceptions();
  const std::string all_reduce_setting_;
  const bool deterministic_;
  const std::chrono::nanoseconds timeout_;
  AbortState abort_;
  FlightRecorder recorder_;
  Limits limits_;
  std::shared_ptr<Plans> plans_;  // null where there is only one rank
  std::unique_ptr<Paths> paths_;
  Transport* transport_ = nullptr;  // that of paths_
  SpinTime spin_time_;
  std::atomic<bool> leaving_{false};
  std::atomic<int> callers_{0};  // threads that want the mutex of a sleeper

  std::mutex mutex_;  // guards everything below
  uint32_t calls_made_ = 0;
  uint32_t splits_made_ = 0;
  std::vector<Operation*> collectives_;  // the first one runs; of pool_
  Execution execution_;
  std::vector<Stream> sends_;
  std::vector<Stream> recvs_;
  int p2p_active_ = 0;
  std::deque<OwnMessage> own_messages_;
  std::vector<std::shared_ptr<Operation>> pool_;  // all there are
  std::array<KeptOutline, size_t{1} << kKeptBits> kept_;
  std::shared_ptr<const Outline> new_outline_;  // of a call that is not kept

  // What the control thread and a stalled wait tell each other.
  std::mutex stall_mutex_;
  std::vector<int> waits_for_;  // this rank's own, for who asks
  std::set<int> asked_;         // ranks that the question went to
  uint32_t asked_call_ = 0;
  std::map<int, PeerState> answers_;  // by rank
};

}  // namespace tutti::internal
