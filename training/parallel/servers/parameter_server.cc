#include "training/parallel/servers/parameter_server.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the communicator of the servers; empty on other ranks.
Communicator servers_among(Communicator& ranks, const Roles& roles) {
  if (!roles.serves(ranks.rank())) return {};
  std::vector<int> servers(static_cast<size_t>(roles.servers()));
  std::iota(servers.begin(), servers.end(), roles.first_server());
  return ranks.create(servers);
}

}  // namespace

ParameterServer::ParameterServer(ParameterStorage& storage, const SyncOptions& options)
    : storage_(storage),
      options_(options),
      ranks_(storage.groups().ranks.front()),
      roles_(roles_of(options, ranks_.size())),
      pushes_(ranks_.duplicate()),
      answers_(ranks_.duplicate()),
      servers_(servers_among(ranks_, roles_)),
      files_(ranks_, options) {
  if (serves()) server_.emplace(pushes_, answers_, storage, options);
  if (works()) worker_.emplace(pushes_, answers_, storage, options);
}

void ParameterServer::begin_step(const std::vector<int64_t>& passes) {
  storage_.zero_gradients();
  storage_.begin_sums(passes);
}

void ParameterServer::publish_values() {
  for (int b = 0; b < static_cast<int>(storage_.layout().buckets.size()); ++b) {
    for (int server = 0; server < roles_.servers(); ++server) {
      const Tensor part = storage_.part_of(b, storage_.values(b), server);
      ranks_.broadcast(as_buffer(part), roles_.first_server() + server);
      if (roles_.first_server() + server != ranks_.rank()) continue;
      bytes_sent_ += static_cast<double>(part.bytes()) * (ranks_.size() - 1);
    }
  }
}

void ParameterServer::abort(const std::string& reason) {
  pushes_.abort(reason);
  answers_.abort(reason);
  if (servers_.valid()) servers_.abort(reason);
}

void ParameterServer::run(const Stretch& stretch) {
  const StretchOrder wanted = order_of(stretch);
  const StretchOrder* const recorded = files_.replayed(wanted);
  const UpdateOrder* const own =
      recorded == nullptr || !serves()
          ? nullptr
          : &recorded->servers[static_cast<size_t>(ranks_.rank() - roles_.first_server())];
  if (!serves()) {
    work(stretch);
  } else if (!works()) {
    serve(stretch, own);
  } else {
    serve_beside_work(stretch, own);
  }
  record_spans();
  const Clock::time_point met = Clock::now();
  files_.record(wanted, roles_.first_server(), server_ ? server_->order() : UpdateOrder());
  for (const OwnedPiece& piece : storage_.owned()) store_masters(piece);
  publish_values();
  waited_ += Clock::now() - met;
}

// Serves in a second thread while this one works. A failure of one thread ends the other; the first
// failure is thrown.
void ParameterServer::serve_beside_work(const Stretch& stretch, const UpdateOrder* recorded) {
  std::exception_ptr first;
  std::mutex mutex;
  const auto ending_other = [&](const auto& part) {
    try {
      part();
    } catch (const std::exception& error) {
      {
        const std::scoped_lock lock(mutex);
        if (!first) first = std::current_exception();
      }
      abort(error.what());
    }
  };
  {
    const std::jthread serving([&] { ending_other([&] { serve(stretch, recorded); }); });
    ending_other([&] { work(stretch); });
  }
  if (first) std::rethrow_exception(first);
}

void ParameterServer::serve(const Stretch& stretch, const UpdateOrder* recorded) {
  server_->serve(std::ssize(stretch.rates), stretch.update, recorded);
}

void ParameterServer::work(const Stretch& stretch) {
  worker_->begin_stretch(std::ssize(stretch.rates), stretch.own_writes);
  options_.kind == SyncKind::async ? take_parts(stretch) : work_in_order(stretch);
}

void ParameterServer::work_in_order(const Stretch& stretch) {
  const int64_t steps = std::ssize(stretch.rates);
  for (int64_t step = 0; step < steps; ++step) {
    stretch.compute(step, ranks_.rank());
    exchange({.clock = step, .pulls = step + 1 < steps}, stretch, step);
  }
}

void ParameterServer::take_parts(const Stretch& stretch) {
  const int64_t all = std::ssize(stretch.rates) * roles_.workers();
  int64_t pushes = 0;
  for (int64_t part = ranks_.rank(); part < all;) {
    const int64_t step = part / roles_.workers();
    const auto factor = stretch.compute(step, static_cast<int>(part % roles_.workers()));
    const bool pulls = ++pushes % options_.pull_every == 0;
    part = exchange(
        {.clock = part, .pulls = pulls, .factor = factor.value_or(0), .counts = factor ? 1 : 0},
        stretch, step);
  }
}

int64_t ParameterServer::exchange(const Push& push, const Stretch& stretch, int64_t step) {
  const Clock::time_point from = Clock::now();
  const int64_t next = worker_->exchange(push, stretch.rates[static_cast<size_t>(step)]);
  if (observer_) observer_("push to servers", 0, from, Clock::now());
  return next;
}

// Adds the server's spans to the trace. Only one thread may add to a trace, so the spans of a
// serving thread are added after that thread has ended.
void ParameterServer::record_spans() {
  if (!serves()) return;
  for (const Server::Span& span : server_->spans()) {
    if (!works() && span.waits) waited_ += span.to - span.from;
    const char* const what = span.waits ? "server: wait for worker" : "server: update for worker";
    if (observer_) observer_(what, span.worker, span.from, span.to);
  }
}

StretchOrder ParameterServer::order_of(const Stretch& stretch) const {
  StretchOrder order{.way = text_of(options_),
                     .run = options_.run,
                     .first = stretch.first,
                     .last = stretch.first + std::ssize(stretch.rates) - 1,
                     .workers = roles_.workers()};
  order.servers.resize(static_cast<size_t>(roles_.servers()));
  return order;
}

std::optional<int> ParameterServer::recorded_ranks(int64_t first) {
  const StretchOrder* const stretch = files_.replayed_from(first);
  if (stretch == nullptr) return std::nullopt;
  return static_cast<int>(stretch->workers) + roles_.apart;
}

int64_t ParameterServer::bytes() const {
  return (server_ ? server_->bytes() : 0) + (worker_ ? worker_->bytes() : 0);
}

std::chrono::nanoseconds ParameterServer::waited() const {
  return (worker_ ? worker_->waited() : std::chrono::nanoseconds()) + waited_;
}

double ParameterServer::bytes_sent() const {
  return bytes_sent_ + (server_ ? server_->bytes_sent() : 0) +
         (worker_ ? worker_->bytes_sent() : 0);
}

}  // namespace tutti::training
