#include "connection.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tutti::torch_backend {

namespace {

// Before the Driver's thread takes a new call: most are waited for at once by who began them.
constexpr std::chrono::microseconds kGrace{50};
// For calls that are under way when a process group is destroyed.
constexpr std::chrono::seconds kDrain{2};

// torch's Store as one of the library's.
struct StoreOfTorch {
  c10::intrusive_ptr<c10d::Store> store;

  template <typename Action>
  static int guarded(Action action) {
    try {
      return action();
    } catch (const std::exception&) {
      return -1;
    }
  }
  static c10d::Store& from(void* context) { return *static_cast<StoreOfTorch*>(context)->store; }
  static int set(const char* key, const char* value, void* context) {
    return guarded([&] {
      from(context).set(key, std::string(value));
      return 0;
    });
  }
  static int get(const char* key, char* value, size_t bytes, void* context) {
    return guarded([&] {
      if (!from(context).check({key})) return 0;
      const std::string text = from(context).get_to_str(key);
      if (text.size() >= bytes) return -2;
      std::memcpy(value, text.c_str(), text.size() + 1);
      return 1;
    });
  }
  static void remove(const char* key, void* context) {
    guarded([&] { return from(context).deleteKey(key) ? 1 : 0; });
  }
};

// All that there are, for leave_all().
struct Connections {
  std::mutex mutex;
  std::vector<std::weak_ptr<Connection>> all;
};

Connections& connections() {
  static auto* const instance = new Connections;  // threads may outlive static objects
  return *instance;
}

}  // namespace

std::exception_ptr error_of(tutti_status_t status, const std::string& text, const char* call) {
  // The words that programs for torch look for.
  const char* kind = status == TUTTI_TIMEOUT ? "Timed out waiting: " : "";
  const std::string what = std::string("tutti: ") + call + ": " + kind + text;
  if (status == TUTTI_INVALID_ARGUMENT) return std::make_exception_ptr(c10::ValueError({}, what));
  return std::make_exception_ptr(c10::DistBackendError({}, what));
}

void check(tutti_status_t status, const char* call) {
  if (status != TUTTI_OK) std::rethrow_exception(error_of(status, tutti_error_text(), call));
}

// ---- Driver ----

void Driver::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (!state->ending) {
    std::erase_if(state->calls, [](const auto& call) { return call->ended(); });
    if (state->calls.empty() || state->others_drive > 0) {
      state->changed.wait(lock);
      lock.unlock();
      std::this_thread::sleep_for(kGrace);
      lock.lock();
      continue;
    }
    const std::shared_ptr<Driven> oldest = state->calls.front();
    lock.unlock();
    oldest->drive();
    lock.lock();
  }
}

void Driver::add(std::shared_ptr<Driven> call) {
  const std::lock_guard lock(state_->mutex);
  const bool first = state_->calls.empty();
  // Ended, so that the list is short while the thread rests.
  while (!state_->calls.empty() && state_->calls.front()->ended()) state_->calls.pop_front();
  state_->calls.push_back(std::move(call));
  if (!thread_.joinable()) {
    thread_ = std::thread([state = state_] { run(state); });
  }
  if (first || state_->calls.size() == 1) state_->changed.notify_all();
}

Driver::~Driver() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
    state_->changed.notify_all();
  }
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

Driver::Rest::Rest(Driver& driver) : driver_(driver) {
  const std::lock_guard lock(driver_.state_->mutex);
  ++driver_.state_->others_drive;
}

Driver::Rest::~Rest() {
  const std::lock_guard lock(driver_.state_->mutex);
  State& state = *driver_.state_;
  std::erase_if(state.calls, [](const auto& call) { return call->ended(); });
  if (--state.others_drive == 0 && !state.calls.empty()) state.changed.notify_all();
}

std::vector<std::shared_ptr<Driven>> Driver::of(const Connection& connection) {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::shared_ptr<Driven>> found;
  for (const auto& call : state_->calls) {
    if (call->connection() == &connection) found.push_back(call);
  }
  return found;
}

// ---- Connection ----

Connection::Connection(tutti_comm_t* comm, std::shared_ptr<Driver> driver)
    : comm_(comm), driver_(std::move(driver)) {}

std::shared_ptr<Connection> Connection::made(tutti_comm_t* comm, std::shared_ptr<Driver> driver) {
  const std::shared_ptr<Connection> connection(new Connection(comm, std::move(driver)));
  Connections& known = connections();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.all, [](const auto& other) { return other.expired(); });
  known.all.push_back(connection);
  return connection;
}

std::shared_ptr<Connection> Connection::through(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                int size, std::chrono::milliseconds timeout) {
  StoreOfTorch meeting{std::move(store)};
  tutti_store_t functions = TUTTI_STORE_INIT;
  functions.set = StoreOfTorch::set;
  functions.get = StoreOfTorch::get;
  functions.remove = StoreOfTorch::remove;
  functions.context = &meeting;
  tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
  options.rank = rank;
  options.ranks = size;
  options.store = &functions;
  options.timeout = std::chrono::duration<double>(timeout).count();
  tutti_comm_t* comm = nullptr;
  check(tutti_init(&comm, &options), "init_process_group");
  return made(comm, std::make_shared<Driver>());
}

std::shared_ptr<Connection> Connection::among(const std::vector<int>& ranks) {
  const Use use(*this);
  tutti_comm_t* comm = nullptr;
  check(tutti_create(use.comm(), ranks.data(), ranks.size(), 0, &comm), "new_group");
  return made(comm, driver_);
}

Connection::~Connection() { close(); }

Connection::Use::Use(Connection& connection) : connection_(connection) {
  if (!connection.closing_) lock_ = std::shared_lock(connection.mutex_);
  TORCH_CHECK_WITH(DistBackendError, !connection.closing_,
                   "tutti: this process group was destroyed; make a new one with "
                   "init_process_group() or new_group()");
}

void Connection::abort(const std::string& reason) {
  if (closing_) return;
  const std::shared_lock lock(mutex_);
  if (comm_ != nullptr) tutti_abort(comm_, reason.c_str());
}

void Connection::close() {
  if (closing_) return;
  const auto late = std::chrono::steady_clock::now() + kDrain;
  for (const auto& call : driver_->of(*this)) {
    while (!call->ended() && std::chrono::steady_clock::now() < late) call->drive();
  }
  if (closing_.exchange(true)) return;
  const std::unique_lock lock(mutex_);
  for (const auto& call : driver_->of(*this)) call->let_go("the process group was destroyed");
  tutti_destroy(std::exchange(comm_, nullptr));
}

void* Connection::allocate(size_t bytes) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t rounded = std::max(page, (bytes + page - 1) / page * page);
  void* data = std::aligned_alloc(page, rounded);
  TORCH_CHECK(data != nullptr, "tutti: out of memory for ", bytes, " bytes");
  const Use use(*this);
  if (const tutti_status_t status = tutti_register(use.comm(), data, rounded)) {
    std::free(data);  // NOLINT: what aligned_alloc() gave
    check(status, "allocate_tensor");
  }
  return data;
}

void Connection::release(void* data) {
  {
    const std::shared_lock lock(mutex_);
    if (comm_ != nullptr) tutti_deregister(comm_, data);
  }
  std::free(data);  // NOLINT: what aligned_alloc() gave
}

void leave_all() {
  std::vector<std::weak_ptr<Connection>> all;
  {
    const std::lock_guard lock(connections().mutex);
    all = connections().all;
  }
  for (auto each = all.rbegin(); each != all.rend(); ++each) {
    if (const std::shared_ptr<Connection> connection = each->lock()) connection->close();
  }
}

}  // namespace tutti::torch_backend
