#include "bindings/mpi/requests.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "bindings/mpi/session.h"

namespace tutti::mpi {

namespace {

// Shortest pause of the helper, used while calls progress.
constexpr std::chrono::microseconds kShortestNap(50);
constexpr std::chrono::microseconds kLongestNap(1000);
// A poll that takes no longer than this is assumed to have made no progress.
constexpr std::chrono::microseconds kMoved(5);
constexpr int kIdleNaps = 100;  // idle polls after which the helper waits for the next call

}  // namespace

Pending::Pending(Call call, std::shared_ptr<Channel> channel)
    : call_(call), channel_(std::move(channel)) {}

Pending::~Pending() = default;

Requests& requests() {
  // The table is never destroyed, because a forked child that exits has no helper to wait for.
  static Requests& all = *std::make_unique<Requests>().release();
  return all;
}

int Requests::query(void* pending, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return static_cast<Pending*>(pending)->status_;
}

int Requests::release(void* pending) {
  const std::unique_ptr<Pending> owned(static_cast<Pending*>(pending));
  return MPI_SUCCESS;
}

// Does nothing: MPI does not allow cancelling collective calls.
int Requests::cancel(void*, int) { return MPI_SUCCESS; }

void Requests::start(std::unique_ptr<Pending> pending, MPI_Request* request) {
  Pending& call = *pending;
  call.work_ = call.start(call.channel_->communicator);
  PMPI_Grequest_start(query, release, cancel, pending.release(), &call.request_);
  *request = call.request_;
  in_flight_.fetch_add(1);
  const std::lock_guard lock(mutex_);
  pending_.push_back(&call);
  call.work_.on_end([&call](const Error* error) {
    if (error != nullptr) call.failure_ = *error;
    call.ended_.store(true, std::memory_order_release);
  });
  if (!helper_.joinable()) {
    helper_ = std::jthread([this](const std::stop_token& stop) { help(stop); });
  }
  if (helper_sleeps_) started_.notify_one();
}

void Requests::progress() {
  std::vector<Pending*> ended;
  {
    const std::lock_guard lock(mutex_);
    ++turns_;
    // Polling one call progresses all others.
    if (!pending_.empty()) pending_.front()->work_.poll();
    std::erase_if(pending_, [&](Pending* pending) {
      if (!pending->ended_.load(std::memory_order_acquire)) return false;
      ended.push_back(pending);
      return true;
    });
  }
  for (Pending* pending : ended) end(*pending);
}

// Completes the request. Afterwards another thread may free the request.
void Requests::end(Pending& pending) {
  if (pending.failure_) {
    pending.status_ = fail(pending.channel_->comm, pending.call_, *pending.failure_);
  }
  pending.finish(!pending.failure_);
  pending.work_ = {};
  pending.channel_.reset();
  PMPI_Grequest_complete(pending.request_);
  in_flight_.fetch_sub(1);
}

void Requests::wait(MPI_Request request) {
  Work work;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(pending_, request, &Pending::request_);
    if (found == pending_.end()) return;
    work = (*found)->work_;
  }
  try {
    work.wait();
  } catch (const std::exception&) {  // the request reports it as well
  }
}

void Requests::hold_helper(bool hold) {
  const std::lock_guard lock(mutex_);
  held_ += hold ? 1 : -1;
}

void Requests::help(const std::stop_token& stop) {
  uint64_t seen = 0;
  int idle = 0;
  std::chrono::microseconds nap = kLongestNap;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    idle = pending_.empty() ? idle + 1 : 0;
    if (idle > kIdleNaps) {
      helper_sleeps_ = true;
      started_.wait(lock, stop, [this] { return !pending_.empty(); });
      helper_sleeps_ = false;
    } else {
      started_.wait_for(lock, stop, nap, [] { return false; });
    }
    const bool helps = !pending_.empty() && turns_ == std::exchange(seen, turns_) && held_ == 0;
    nap = helps && poll_oldest() ? kShortestNap : std::min(2 * nap, kLongestNap);
  }
}

// Polls the oldest call that has not ended, which makes progress on all calls. (Polling a call that
// has ended makes no progress.) Returns true if something probably progressed.
bool Requests::poll_oldest() {
  const auto oldest =
      std::ranges::find_if(pending_, [](const auto& pending) { return !pending->ended_; });
  if (oldest == pending_.end()) return false;
  const auto start = std::chrono::steady_clock::now();
  (*oldest)->work_.poll();
  return std::chrono::steady_clock::now() - start > kMoved;
}

void Requests::close() {
  if (!helper_.joinable()) return;
  helper_.request_stop();
  helper_.join();
  helper_ = {};
}

}  // namespace tutti::mpi
