// Implementation of a communicator: starting calls, progress, waiting, and the handling of missing
// peers. Public interface: communicator.h.
//
// Collectives run one after another in the order of their calls; messages between two ranks run
// concurrently with them (point_to_point.h).
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

// Returns the GPU of a call's buffers, or the thread's current GPU if this rank has no buffer.
// Throws Error(invalid_argument) if a buffer is not GPU memory.
int device_of(const Request& request);

// Allocates memory of the thread's current GPU, in whole pages.
std::shared_ptr<void> allocate_on_device(size_t bytes);

// Returns a function that makes communicators of the engine's job. `engine`, the pointer itself,
// must outlive the function.
MakeTogether maker(const std::shared_ptr<Engine>& engine);

// How a communicator was derived from another one.
struct Origin {
  CommunicatorImpl* parent = nullptr;
  bool is_part = false;  // true: an internal part of the parent; both fail together
  int queue = 0;         // its index among the parent's queues; 0: not a queue
};

class CommunicatorImpl final : public ControlClient, public EngineClient, public DevicePeers {
 public:
  // Creates the communicator. Collective among `members` (ranks of the job; their positions are the
  // ranks here). Throws if meanwhile the parent is aborted, or another member dies or fails to
  // create the communicator.
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
  // Returns the rank in this communicator of a rank of the job; size() if it is not a member.
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
  // Returns the paths between the ranks; null for a single rank.
  Paths* paths() { return paths_.get(); }
  void open_queues(int count);
  // Returns the queue with this index (from 1). Throws Error(invalid_argument) if it is not open.
  const std::shared_ptr<CommunicatorImpl>& queue_of(int number);

  std::shared_ptr<const Operation> prepare(const Request& request, const CallOptions& options);
  // Starts a call and returns its operation; null if the call completed at once.
  std::shared_ptr<Operation> start(const Request& request, const CallOptions& options);
  std::shared_ptr<Operation> start(const Operation& prepared);
  Work start_unowned(const Request& request, const CallOptions& options) override;
  // Starts the call and waits for it.
  void run(const Request& request, const CallOptions& options);
  void run(const Operation& prepared);
  MessageInfo receive(const Request& request, const CallOptions& options);
  // Blocks until a message from `source` with `tag` has arrived, and returns its envelope. The
  // message is not consumed.
  MessageInfo await_message(int source, int tag);
  std::optional<MessageInfo> probe(int source, int tag);

  // Wait for a call. After an abort, poll() returns `failed` and wait() throws the error, but only
  // once no other thread can access the call's buffers and no peer can use data read from them.
  // `stall` is the stall state of the caller's handle.
  WorkState poll(Operation& operation, StallState& stall);
  std::optional<Error> error_of(const Operation& operation) const;
  // Waits. Returns false if `deadline` passed first.
  bool wait(Operation& operation, const Deadline& deadline, StallState& stall);

  void on_end(Operation& operation, std::function<void(const Error*)> callback);
  void while_waiting(std::function<void()> hook);

  // Functions of EngineClient:
  bool progress() override;
  std::unique_lock<std::mutex> try_lock() override {
    // Threads that begin a call go first: on a shared core they would hardly ever get the mutex.
    if (callers_.load(std::memory_order_relaxed) > 0) return {};
    return std::unique_lock(mutex_, std::try_to_lock);
  }
  int calls_in_flight() const override {
    return static_cast<int>(collectives_.size()) + messages_.in_flight();
  }
  Transport* transport() override { return transport_; }
  bool stirs_locked() override {
    return callers_.load() > 0 || abort_.raised() || progress_locked();
  }

  // Functions of ControlClient:
  void on_abort(const Error& error) override;
  std::string on_question(int asker, uint32_t call) override;
  void on_answer(int rank, uint32_t call, std::string_view answer) override;
  void on_connection(int rank, int lane, int number, ByteStream socket) override;
  void on_opened(int rank, int lane, ByteStream socket) override;
  Activity activity() override;

 private:
  // Defined in setup.cc:
  void open_transport();
  void close_transport();
  Paths::Events path_events();
  StallWatch::Channel stall_channel();
  PointToPoint::Owner owner_of_messages();
  void check_group(std::span<const int> ranks, int tag) const;
  void meet(int next, int previous, int tag, uint64_t id);
  std::vector<Place> places() const;

  // Defined in start.cc:
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
  void release(std::unique_lock<std::mutex>& lock);

  // Defined in on_device.cc:
  DeviceRequest device_request(const Request& request, const CallOptions& options);
  std::unique_ptr<DeviceRoutes> make_device_routes(int device);
  std::shared_ptr<CommunicatorImpl> split_off(int color, int key, Origin origin);
  std::vector<std::byte> exchange(std::span<const std::byte> mine);
  bool meet_all();

  // Defined in queues.cc:
  void close_queues();
  void fail_queues(const Error& error);
  std::string name_of_call(uint32_t call) const;

  // Defined in communicator_impl.cc:
  std::unique_lock<std::mutex> lock_for_call();
  bool progress_locked();
  bool advance(Operation& operation, Execution& execution);
  bool may_start(Operation& operation);
  void complete(Operation& operation);
  [[gnu::noinline]] void call_back(Operation& operation, const std::optional<Error>& error);
  void abandon(Operation& operation);
  void abandon_calls();
  void require_own_process() const;
  [[noreturn]] void refuse_forked_child() const;
  void report_unexpected(const Operation& operation, const Unexpected& message);
  void raise_mismatch(uint32_t call, const Signature& mine, int peer, uint32_t their_call,
                      const Signature& theirs);
  void raise_everywhere(const Error& error);
  void raise_consequence(const Error& error);
  void log_last_calls(ErrorCode code) const;

  // Defined in activity.cc:
  std::vector<int> waited_for();
  void note_lateness(const Operation& operation, int64_t waited_ns);
  void write_report(const Error& error);

  // Defined in waiting.cc:
  Error end_by_abort();
  void check_stall(Operation& operation, StallState& stall);
  void end_stall(StallState& stall);
  void interrupt_stall(StallState& stall);
  std::vector<int> missing(const Operation& operation);
  std::vector<AwaitedPeer> awaited_peers(const Operation& operation);
  void note_exchanges(const Operation& operation);
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
  const uint64_t epoch_;  // see Membership::epoch
  const Origin origin_;
  const int exceptions_ = std::uncaught_exceptions();
  const std::chrono::nanoseconds timeout_;
  const int64_t late_ns_;  // longer waits for a rank are reported by a warning; 0: never
  AbortState abort_;
  FlightRecorder recorder_;
  StallWatch stall_;
  ReportFile report_file_;
  Tally tally_;
  std::unique_ptr<Paths> paths_;
  Transport* transport_ = nullptr;  // owned by paths_
  EarlyConnections early_;
  WaitTimes wait_times_;
  std::atomic<bool> leaving_{false};
  std::atomic<int> callers_{0};  // number of threads that want the mutex to begin a call

  DeviceFront devices_;
  // Queues 1, 2, ... Each is a communicator of the same ranks and a part of this one. Capacity for
  // the maximum is reserved at once, so that calls may read one queue while others are opened.
  std::mutex queues_mutex_;
  std::vector<std::shared_ptr<CommunicatorImpl>> queues_;
  std::atomic<int> queues_open_{0};

  Survivors survivors_;

  std::mutex mutex_;        // guards everything below
  uint32_t calls_made_;     // number of the last collective call
  Predecessors following_;  // predecessors of the call about to start
  uint32_t splits_made_ = 0;
  // Number of communicators that create() has made, by hash of members and tag.
  std::map<uint64_t, uint64_t> groups_made_;
  OperationQueue collectives_;  // collectives in flight; the first one runs; owned by pool_
  Execution execution_;
  PointToPoint messages_;
  OperationPool pool_;
  CallCompiler compiler_;
};

}  // namespace tutti::internal
