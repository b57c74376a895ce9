#include "connection.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "errors.h"

namespace tutti::torch_backend {

namespace {

// Grace period for calls in flight when a process group is destroyed.
constexpr std::chrono::seconds kDrain{2};

constexpr const char* kDestroyed = "the process group was destroyed";

// All open connections, for leave_all().
struct Connections {
  std::mutex mutex;
  std::vector<std::weak_ptr<Connection>> all;
};

Connections& connections() {
  static auto* const instance = new Connections;  // threads may outlive static objects
  return *instance;
}

}  // namespace

std::shared_ptr<Connection> Connection::made(tutti_comm_t* comm, std::shared_ptr<Driver> driver) {
  const std::shared_ptr<Connection> connection(new Connection(comm, std::move(driver)));
  Connections& known = connections();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.all, [](const auto& other) { return other.expired(); });
  known.all.push_back(connection);
  return connection;
}

std::shared_ptr<Connection> Connection::among(const std::vector<int>& ranks) {
  const UseGate::Use inside = use("new_group");
  tutti_comm_t* made_of_some = nullptr;
  check(tutti_create(comm_, ranks.data(), ranks.size(), 0, &made_of_some), "new_group");
  return made(made_of_some, driver_);
}

UseGate::Use Connection::use(const char* call) {
  UseGate::Use inside = gate_.enter();
  if (!inside) {
    fail(
        TUTTI_ABORTED,
        "this process group was destroyed; make a new one with init_process_group() or new_group()",
        call);
  }
  return inside;
}

void Connection::abort(const std::string& reason) {
  if (const UseGate::Use inside = gate_.enter_until_closed()) tutti_abort(comm_, reason.c_str());
}

void Connection::close() {
  const auto late = std::chrono::steady_clock::now() + kDrain;
  for (const auto& call : driver_->of(*this)) {
    while (!call->ended() && std::chrono::steady_clock::now() < late) call->drive();
  }
  // The remaining calls are destroyed after the gate is closed, because their tensors may use
  // memory of this connection, and releasing that memory enters the gate.
  std::vector<std::shared_ptr<Driven>> left;
  gate_.close(
      late - std::chrono::steady_clock::now(), [this] { tutti_abort(comm_, kDestroyed); },
      [&] {
        left = driver_->of(*this);
        for (const auto& call : left) call->let_go(kDestroyed);
        tutti_destroy(std::exchange(comm_, nullptr));
      });
}

void* Connection::allocate(size_t bytes) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t rounded = std::max(page, (bytes + page - 1) / page * page);
  const UseGate::Use inside = use("allocate_tensor");
  void* const data = std::aligned_alloc(page, rounded);
  if (data == nullptr) {
    fail(TUTTI_SYSTEM, "out of memory for " + std::to_string(bytes) + " bytes", "allocate_tensor");
  }
  if (const tutti_status_t status = tutti_register(comm_, data, rounded)) {
    std::free(data);  // NOLINT: memory from aligned_alloc()
    check(status, "allocate_tensor");
  }
  return data;
}

void Connection::release(void* data) {
  if (const UseGate::Use inside = gate_.enter_until_closed()) tutti_deregister(comm_, data);
  std::free(data);  // NOLINT: memory from aligned_alloc()
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
