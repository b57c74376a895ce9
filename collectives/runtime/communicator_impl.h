// The inside of a communicator: calls in, progress, waiting, and what happens when a peer does not
// come. Public face: communicator.h.
//
// Collectives run one after the other, in the order in which they were called; messages between two
// ranks go beside them (point_to_point.h).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/abort.h"
#include "collectives/communicator.h"
#include "collectives/runtime/calls/call_compiler.h"
#include "collectives/runtime/calls/operation.h"
#include "collectives/runtime/calls/operation_pool.h"
#include "collectives/runtime/calls/operation_queue.h"
#include "collectives/runtime/calls/point_to_point.h"
#include "collectives/runtime/device/device_front.h"
#include "collectives/runtime/device/device_peers.h"
#include "collectives/runtime/early_connections.h"
#include "collectives/runtime/waiting/backoff.h"
#include "collectives/runtime/waiting/engine.h"
#include "collectives/runtime/waiting/flight_recorder.h"
#include "collectives/runtime/waiting/report_file.h"
#include "collectives/runtime/waiting/stall_watch.h"
#include "collectives/runtime/waiting/survivors.h"
#include "collectives/runtime/waiting/tally.h"
#include "topology/domain.h"
#include "transport/bootstrap/control/control.h"
#include "transport/paths/paths.h"
#include "transport/transport.h"

namespace tutti::internal {

class CommunicatorImpl;
class DeviceRoutes;
struct DeviceRequest;

// The GPU of a call's buffers; of a rank without any, the thread's current one. Throws
// Error(invalid_argument) where they are no GPU's.
int device_of(const Request& request);

// Of the thread's current GPU, in whole pages of it.
std::shared_ptr<void> allocate_on_device(size_t bytes);

// Makes communicators of the engine's job. The engine's handle outlives the returned function.
MakeTogether maker(const std::shared_ptr<Engine>& engine);

// Which communicator another one is made of, and what for.
struct Origin {
  CommunicatorImpl* parent = nullptr;
  bool is_part = false;  // the parent makes it for itself: they fail together
  int queue = 0;         // its number among the parent's queues, if it is one
};

class CommunicatorImpl final : public ControlClient, public EngineClient, public DevicePeers {
 public:
  // Collective among `members` (world ranks; position = rank here). An abort of the parent
  // meanwhile ends it, as does one of the new communicator: by a member that cannot make it, or has
  // died.
  CommunicatorImpl(std::shared_ptr<Engine> engine, uint64_t id, std::vector<int> members, int rank,
                   uint64_t epoch, Origin origin = {});
  ~CommunicatorImpl() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  Membership membership() const;
  std::string transport_name() const { return paths_ ? std::string(paths_->name()) : "none"; }
  std::string describe(int rank) const { return engine_->control().describe(members_[rank]); }
  const Engine* engine() const { return engine_.get(); }
  const InitStats& init_stats() const { return engine_->control().init_stats(); }
  std::shared_ptr<CommunicatorImpl> split(int color, int key);
  std::shared_ptr<CommunicatorImpl> create(std::span<const int> ranks, int tag);
  Agreement agree(uint64_t flags);
  Survivors& survivors() {
    require_own_process();
    return survivors_;
  }
  // Of a rank of the job; size() for one that is no member.
  int member(int world_rank) const;
  void abort(const std::string& reason);
  std::optional<Error> failure() const {
    if (!abort_.raised()) return std::nullopt;
    return abort_.error();
  }
  const AbortState& abort_state() const { return abort_; }
  void run_on_device(const Request& request, const CallOptions& options) override;
  std::shared_ptr<void> register_window(void* data, size_t bytes);
  std::string algorithm_on_device(const Request& request, const CallOptions& options);
  // How the ranks reach each other; null where there is only one.
  Paths* paths() { return paths_.get(); }
  void open_queues(int count);
  // Queue `number`, from 1. Throws Error(invalid_argument) for one that is not open.
  const std::shared_ptr<CommunicatorImpl>& queue_of(int number);

  std::shared_ptr<const Operation> prepare(const Request& request, const CallOptions& options);
  // Null when the call is complete at once.
  std::shared_ptr<Operation> start(const Request& request, const CallOptions& options);
  std::shared_ptr<Operation> start(const Operation& prepared);
  Work start_unowned(const Request& request, const CallOptions& options) override;
  // Start and wait.
  void run(const Request& request, const CallOptions& options);
  void run(const Operation& prepared);
  MessageInfo receive(const Request& request, const CallOptions& options);
  // Blocks until there is a message from `source` with `tag`, and leaves it.
  MessageInfo await_message(int source, int tag);
  std::optional<MessageInfo> probe(int source, int tag);

  // Both tell of an abort (the second by throwing it) only when no other thread can still touch the
  // call's buffers, nor another rank take what it reads there for the call's. `patience` belongs to
  // the caller's handle on the call.
  WorkState poll(Operation& operation, Patience& patience);
  std::optional<Error> error_of(const Operation& operation) const;
  // False when `deadline` passed first.
  bool wait(Operation& operation, const Deadline& deadline, Patience& patience);

  void on_end(Operation& operation, std::function<void(const Error*)> callback);
  void while_waiting(std::function<void()> hook);

  // EngineClient
  bool progress() override;
  std::unique_lock<std::mutex> try_lock() override {
    return std::unique_lock(mutex_, std::try_to_lock);
  }
  int calls_under_way() const override {
    return static_cast<int>(collectives_.size()) + messages_.under_way();
  }
  Transport* transport() override { return transport_; }
  bool stirs_locked() override {
    return callers_.load() > 0 || abort_.raised() || progress_locked();
  }

  // ControlClient
  void on_abort(const Error& error) override;
  std::string on_question(int asker, uint32_t call) override;
  void on_answer(int rank, uint32_t call, std::string_view answer) override;
  void on_connection(int rank, int lane, int number, ByteStream socket) override;
  void on_opened(int rank, int lane, ByteStream socket) override;
  Activity activity() override;

 private:
  // setup.cc
  void open_transport();
  void close_transport();
  Paths::Events path_events();
  StallWatch::Channel stall_channel();
  PointToPoint::Owner owner_of_messages();
  void check_group(std::span<const int> ranks, int tag) const;
  void meet(int next, int previous, int tag, uint64_t id);
  std::vector<Place> places() const;

  // start.cc
  void plan(const Request& request, const CallOptions& options, Operation& operation);
  [[gnu::noinline]] void plan_encoded(const Request& request, const CallOptions& options,
                                      Operation& operation);
  [[gnu::noinline]] void follow(std::span<const Work> works);
  const std::shared_ptr<Operation>& start_locked(const Request& request,
                                                 const CallOptions& options);
  const std::shared_ptr<Operation>& start_locked(const Operation& prepared);
  const std::shared_ptr<Operation>& queue(const std::shared_ptr<Operation>& operation);
  [[gnu::noinline]] static void run_alone(const Operation& operation);
  const std::shared_ptr<Operation>& start_probe(int source, int tag);
  std::shared_ptr<Operation> set_off(const std::shared_ptr<Operation>& operation);
  void announce(Operation& operation);
  void record_start(Operation& operation);
  void record_end(const Operation& operation);
  void finish(const std::shared_ptr<Operation>& operation, std::unique_lock<std::mutex>& lock);

  // on_device.cc
  DeviceRequest device_request(const Request& request, const CallOptions& options);
  std::unique_ptr<DeviceRoutes> make_device_routes(int device);
  std::shared_ptr<CommunicatorImpl> split_off(int color, int key, Origin origin);
  std::vector<std::byte> exchange(std::span<const std::byte> mine);
  bool meet_all();

  // queues.cc
  void close_queues();
  void fail_queues(const Error& error);
  std::string name_of_call(uint32_t call) const;

  // communicator_impl.cc
  std::unique_lock<std::mutex> lock_for_call();
  bool progress_locked();
  bool advance(Operation& operation, Execution& execution);
  bool may_start(Operation& operation);
  void complete(Operation& operation);
  [[gnu::noinline]] void call_back(Operation& operation);
  void abandon(Operation& operation);
  void abandon_calls();
  void require_own_process() const;
  [[noreturn]] void refuse_forked_child() const;
  void report_unexpected(const Operation& operation, const Unexpected& message);
  void raise_mismatch(uint32_t call, const Signature& mine, int peer, uint32_t their_call,
                      const Signature& theirs);
  void raise_everywhere(const Error& error);
  void raise_consequence(const Error& error);
  void tell_last_calls(ErrorCode code) const;

  // activity.cc
  std::vector<int> waited_for();
  void note_lateness(const Operation& operation, int64_t waited_ns);
  void write_report(const Error& error);

  // waiting.cc
  Error end_by_abort();
  void look_at_stall(Operation& operation, Patience& patience);
  void end_stall(Patience& patience);
  void interrupt_stall(Patience& patience);
  std::vector<int> missing(const Operation& operation);
  std::vector<Want> wants(const Operation& operation);
  void check_answers(const Operation& operation);
  void check_gone(const Operation& operation);
  void raise_gone(const Operation& operation, int peer, std::string_view how);
  void time_out(const Operation& operation);
  std::string explain_unclaimed();
  StallWatch::Explanation explain_missing(const Operation& operation);

  const std::shared_ptr<Engine> engine_;
  const uint64_t id_;
  const std::vector<int> members_;
  const int rank_;
  const uint64_t epoch_;  // Membership::epoch
  const Origin origin_;
  const int exceptions_ = std::uncaught_exceptions();
  const std::chrono::nanoseconds timeout_;
  const int64_t late_ns_;  // to wait so long for a rank is worth a warning; 0: never
  AbortState abort_;
  FlightRecorder recorder_;
  StallWatch stall_;
  ReportFile report_file_;
  Tally tally_;
  std::unique_ptr<Paths> paths_;
  Transport* transport_ = nullptr;  // that of paths_
  EarlyConnections early_;
  WaitTimes wait_times_;
  std::atomic<bool> leaving_{false};
  std::atomic<int> callers_{0};  // threads that want the mutex of a sleeper

  DeviceFront devices_;
  // Queues 1, 2, ...: each a communicator of the same ranks, and a part of this one. Reserved at
  // once for the most there can be, so that calls may read one while others are opened.
  std::mutex queues_mutex_;
  std::vector<std::shared_ptr<CommunicatorImpl>> queues_;
  std::atomic<int> queues_open_{0};

  Survivors survivors_;

  std::mutex mutex_;        // guards everything below
  uint32_t calls_made_;     // the number of the last one
  Predecessors following_;  // of the call that is about to start
  uint32_t splits_made_ = 0;
  std::map<uint64_t, uint64_t> groups_made_;  // by members and tag: how many
  OperationQueue collectives_;                // the first one runs; of pool_
  Execution execution_;
  PointToPoint messages_;
  OperationPool pool_;
  CallCompiler compiler_;
};

}  // namespace tutti::internal
