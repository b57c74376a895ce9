#include "bindings/python/extension/communicator.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "bindings/python/extension/errors.h"
#include "bindings/python/extension/signals.h"

namespace tutti::python {

namespace nb = nanobind;

namespace {

// Returns the number of forks between this process and the first.
int& forks() {
  static int count = 0;
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(nullptr, nullptr, [] { ++count; }); });
  return count;
}

// A communicator under construction. If an interrupt comes before it has an owner, it is destroyed
// here.
struct Making {
  Making() = default;
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;
  ~Making() { tutti_destroy(comm); }
  // Returns the communicator; null if there is none.
  std::unique_ptr<Communicator> take() {
    tutti_comm_t* const made = std::exchange(comm, nullptr);
    return made == nullptr ? nullptr : std::make_unique<Communicator>(made);
  }

  tutti_comm_t* comm = nullptr;
};

}  // namespace

Communicator::Communicator(tutti_comm_t* handle)
    : handle_(handle), rank_(tutti_rank(handle)), size_(tutti_size(handle)), process_(forks()) {}

bool Communicator::of_another_process() const { return process_ != forks(); }

tutti_comm_t* Communicator::handle() const {
  if (handle_ == nullptr) {
    raise(TUTTI_INVALID_ARGUMENT, "the communicator is closed: make calls before close()");
  }
  if (of_another_process()) {
    raise(TUTTI_UNSUPPORTED,
          "the communicator belongs to the parent of this forked process: call tutti.init() after "
          "the fork, or start processes by 'spawn'");
  }
  return handle_;
}

Calls::iterator Communicator::start(const Request& given) {
  end_abandoned();
  Call call;
  if (!given.input.is_none()) call.input = Array(given.input, Access::read, "the input");
  if (!given.output.is_none()) call.output = Array(given.output, Access::write, "the output");
  tutti_request_t request = TUTTI_REQUEST_INIT;
  request.collective = given.collective;
  request.root = given.root;
  request.op = given.op;
  // If a rank lacks a buffer, the other buffer describes it.
  request.input = given.input.is_none() ? call.output.shape() : call.input.buffer();
  request.output = given.output.is_none() ? call.input.shape() : call.output.buffer();
  // Only the root reads the counts of a gather.
  const bool reads_counts = given.collective != TUTTI_GATHER || given.root == rank_;
  for (const auto* counts : {given.input_counts, given.output_counts}) {
    if (counts == nullptr) continue;
    request.uneven = 1;
    if (reads_counts && counts->size() != static_cast<size_t>(size_)) {
      raise(TUTTI_INVALID_ARGUMENT, std::to_string(counts->size()) + " counts for " +
                                        std::to_string(size_) + " ranks: give one for each rank");
    }
  }
  if (given.input_counts != nullptr) request.input_counts = given.input_counts->data();
  if (given.output_counts != nullptr && reads_counts) {
    request.output_counts = given.output_counts->data();
  }
  // handle() is called only here, because creating the arrays may run Python code, which may close
  // the communicator.
  tutti_comm_t* const comm = handle();
  tutti_status_t status = TUTTI_OK;
  {
    const Visit visit(*this);
    const nb::gil_scoped_release without_gil;
    status = tutti_start(comm, &request, &given.options, &call.work);
  }
  check(status);
  calls_.push_back(std::move(call));
  return std::prev(calls_.end());
}

void Communicator::end(Calls::iterator call) {
  tutti_work_free(call->work);
  calls_.erase(call);
}

void Communicator::abandon(Calls::iterator call) {
  call->abandoned = true;
  ++abandoned_;
}

void Communicator::end_abandoned() {
  if (abandoned_ == 0 || closed() || of_another_process()) return;
  // `ended` is destroyed at the end of this function, because destroying the arrays of the calls
  // may run Python code, which may make calls.
  Calls ended;
  for (auto call = calls_.begin(); call != calls_.end();) {
    const auto current = call++;
    if (!current->abandoned) continue;
    int done = 0;
    // A failure is ignored here, because later calls report it.
    if (tutti_test(current->work, &done) == TUTTI_OK && done == 0) continue;
    tutti_work_free(current->work);
    ended.splice(ended.end(), calls_, current);
    --abandoned_;
  }
}

// Visit of a thread that runs signal handlers until a blocking call of the library returns.
class Communicator::LongVisit {
 public:
  explicit LongVisit(Communicator& communicator)
      : communicator_(communicator), visit_(communicator) {
    communicator_.long_visits_.push_back(std::this_thread::get_id());
  }
  ~LongVisit() { std::erase(communicator_.long_visits_, std::this_thread::get_id()); }
  LongVisit(const LongVisit&) = delete;
  LongVisit& operator=(const LongVisit&) = delete;

 private:
  Communicator& communicator_;
  Visit visit_;
};

// Runs a blocking call on this communicator; an interrupt aborts the communicator.
template <typename Block>
void Communicator::run(const char* name, Block block) {
  tutti_comm_t* const comm = handle();
  const LongVisit visit(*this);
  // The call uses the visit's handle, not handle_, because another thread may be in close(), which
  // waits for the visit.
  listening_for_signals([comm, block] { return block(comm); },
                        [comm, name] {
                          const std::string reason = std::string(name) + "() was interrupted";
                          return tutti_abort(comm, reason.c_str()) == TUTTI_OK;
                        });
}

void Communicator::open_queues(int32_t count) {
  run("open_queues", [count](tutti_comm_t* comm) { return tutti_open_queues(comm, count); });
}

std::unique_ptr<Communicator> Communicator::split(int32_t color, int32_t key) {
  Making part;
  run("split", [color, key, &part](tutti_comm_t* comm) {
    return tutti_split(comm, color, key, &part.comm);
  });
  return part.take();
}

std::unique_ptr<Communicator> Communicator::create(const std::vector<int32_t>& ranks, int32_t tag) {
  Making created;
  run("create", [&ranks, tag, &created](tutti_comm_t* comm) {
    return tutti_create(comm, ranks.data(), ranks.size(), tag, &created.comm);
  });
  return created.take();
}

std::unique_ptr<Communicator> Communicator::shrink() {
  Making left;
  run("shrink", [&left](tutti_comm_t* comm) { return tutti_shrink(comm, &left.comm); });
  return left.take();
}

std::unique_ptr<Communicator> Communicator::grow(int32_t count) {
  Making grown;
  run("grow", [count, &grown](tutti_comm_t* comm) { return tutti_grow(comm, count, &grown.comm); });
  return grown.take();
}

std::pair<uint64_t, std::vector<int32_t>> Communicator::agree(uint64_t flags) {
  std::vector<int32_t> living(static_cast<size_t>(size()));
  size_t count = 0;
  run("agree", [&flags, &living, &count](tutti_comm_t* comm) {
    return tutti_agree(comm, &flags, living.data(), &count);
  });
  living.resize(count);
  return {flags, living};
}

std::optional<tutti_message_t> Communicator::probe(int32_t source, int32_t tag, bool wait) {
  tutti_message_t message = TUTTI_MESSAGE_INIT;
  if (wait) {
    run("probe", [source, tag, &message](tutti_comm_t* comm) {
      return tutti_probe(comm, source, tag, &message);
    });
    return message;
  }
  int found = 0;
  check(tutti_probe_now(handle(), source, tag, &found, &message));
  return found == 0 ? std::nullopt : std::optional(message);
}

void Communicator::abort(const std::string& reason) {
  check(tutti_abort(handle(), reason.c_str()));
}

void Communicator::close() {
  if (std::ranges::count(long_visits_, std::this_thread::get_id()) > 0) {
    raise(
        TUTTI_INVALID_ARGUMENT,
        "a signal handler cannot close a communicator during split(), create() or probe(): abort() "
        "it, or raise an exception");
  }
  tutti_comm_t* const comm = std::exchange(handle_, nullptr);
  if (comm == nullptr || of_another_process()) return;
  // Threads that wait for a call return soon by themselves.
  if (!long_visits_.empty()) {
    tutti_abort(comm, "the communicator was closed during split(), create() or probe()");
  }
  while (inside_ > 0) {
    nb::gil_scoped_release without_gil;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const Call& call : calls_) tutti_work_free(call.work);
  {
    nb::gil_scoped_release without_gil;
    tutti_destroy(comm);
  }
  const Calls ended = std::exchange(calls_, {});  // no call uses the arrays any more
}

std::unique_ptr<Communicator> join(const JoinOptions& given) {
  struct Joining {
    explicit Joining(const JoinOptions& options) : given(options) {}
    JoinOptions given;
    Making world;
  };
  const auto joining = std::make_shared<Joining>(given);
  listening_for_signals(
      [joining] {
        const JoinOptions& given = joining->given;
        tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
        options.rank = given.rank;
        options.ranks = given.size;
        if (given.master_address) options.master_address = given.master_address->c_str();
        options.master_port = given.master_port;
        if (given.rendezvous_file) options.rendezvous_file = given.rendezvous_file->c_str();
        return tutti_init(&joining->world.comm, &options);
      },
      [] { return false; });
  return joining->world.take();
}

}  // namespace tutti::python
