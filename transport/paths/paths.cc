#include "transport/paths/paths.h"

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "base/growing_pause.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "transport/fabric/fabric_memory.h"
#include "transport/fabric/fabric_transport.h"
#include "transport/fault/fault_transport.h"
#include "transport/paths/fabrics.h"
#include "transport/router.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace tutti {

namespace {

constexpr std::chrono::milliseconds kLongestPause(1);
// The longest pause between polls grows by this time per rank, because hundreds of ranks that poll
// every millisecond would slow down the rank that they wait for.
constexpr std::chrono::microseconds kPausePerRank(100);
// Time to wait, after a rank has left, for the report of a death that may have made it leave.
constexpr std::chrono::seconds kReportTime(2);

// Returns the time to wait for the other ranks of this host to create the same communicator:
// TUTTI_TIMEOUT, limited to between 5 and 30 seconds, plus a time per rank, because ranks that have
// just started may share a few cores.
std::chrono::milliseconds open_timeout(size_t local_ranks) {
  constexpr std::chrono::nanoseconds kShortest = std::chrono::seconds(5);
  constexpr std::chrono::nanoseconds kLongest = std::chrono::seconds(30);
  const std::chrono::nanoseconds set = settings().get_duration("TUTTI_TIMEOUT");
  const std::chrono::nanoseconds wait =
      set.count() == 0 ? kLongest : std::clamp(set, kShortest, kLongest);
  return std::chrono::duration_cast<std::chrono::milliseconds>(wait) +
         local_ranks * std::chrono::milliseconds(100);
}

std::chrono::microseconds longest_pause(size_t local_ranks) {
  return std::max<std::chrono::microseconds>(kLongestPause, local_ranks * kPausePerRank);
}

std::string region_name(uint64_t id, int owner) { return cat("region ", id, " of ", owner); }

// Returns the members of each host, as ranks of the communicator.
std::map<std::string, std::vector<int>> by_host(const Control& control,
                                                std::span<const int> members) {
  std::map<std::string, std::vector<int>> hosts;
  for (size_t r = 0; r < members.size(); ++r) {
    hosts[control.peer(members[r]).host_id].push_back(static_cast<int>(r));
  }
  return hosts;
}

std::unique_ptr<Transport> route(std::unique_ptr<Transport> near, const std::vector<int>& local,
                                 std::unique_ptr<Transport> far, size_t ranks) {
  if (!near || !far) return near ? std::move(near) : std::move(far);
  std::vector<int> near_rank(ranks, -1);
  for (size_t i = 0; i < local.size(); ++i) near_rank[local[i]] = static_cast<int>(i);
  return std::make_unique<Router>(std::move(near), std::move(near_rank), std::move(far));
}

}  // namespace

// Opens the paths. All decisions here use data that is the same on all ranks: the table of hosts
// and the settings.
Paths::Paths(Endpoint& endpoint, uint64_t id, std::span<const int> members, int rank, Events events,
             std::function<void()> throw_if_aborted)
    : endpoint_(endpoint),
      id_(id),
      members_(members.begin(), members.end()),
      rank_(rank),
      events_(std::move(events)),
      throw_if_aborted_(std::move(throw_if_aborted)) {
  const Control& control = endpoint_.control();
  const auto hosts = by_host(control, members_);
  const Transports wanted = parse_transports(settings().get_string("TUTTI_TRANSPORT"));
  if (wanted.only_shm && hosts.size() > 1) {
    throw Error(ErrorCode::unsupported,
                cat("TUTTI_TRANSPORT=shm, but the ranks do not share memory: they run on ",
                    hosts.size(), " hosts, or under several users or containers"),
                {.remedy = "set TUTTI_TRANSPORT to auto, or to shm+tcp, shm+ucx or shm+ofi"});
  }
  size_t largest = 1;
  for (const auto& [host, ranks] : hosts) largest = std::max(largest, ranks.size());
  const std::vector<int>& local = hosts.at(control.peer(members_[rank_]).host_id);
  const bool by_fabric = endpoint_.fabric() != nullptr;
  if (by_fabric) far_ = parse_path_class(endpoint_.fabric_name()).value();
  const bool all_far = !wanted.near_by_shm;
  const bool any_far = all_far || hosts.size() > 1;
  any_shm_ = !all_far && largest > 1;
  const auto rails_of = [&](int member) { return control.peer(member).rails(); };
  rails_ = static_cast<int>(std::ranges::min(members_ | std::views::transform(rails_of)));
  name_ =
      cat(any_shm_ ? "shm" : "", any_shm_ && any_far ? "+" : "", any_far ? tutti::name(far_) : "");
  const auto ranks = static_cast<int>(members_.size());
  limits_ = agreed_limits(ranks, static_cast<int>(largest), any_shm_,
                          any_far ? std::optional<PathClass>(far_) : std::nullopt, rails_);
  std::unique_ptr<Transport> near;
  std::unique_ptr<Transport> far;
  if (any_far) far = by_fabric ? open_fabric() : open_tcp();
  if (any_shm_ && local.size() > 1) near = open_shm(local, static_cast<int>(largest));
  transport_ = route(std::move(near), local, std::move(far), members_.size());
  if (Faults& faults = endpoint_.faults(); !faults.empty()) {
    transport_ = std::make_unique<FaultTransport>(std::move(transport_), faults, events_.abort);
  }
}

std::unique_ptr<Transport> Paths::open_shm(const std::vector<int>& local, int largest_local) {
  const shm::Geometry geometry(static_cast<int>(local.size()), largest_local);
  local_ = local;
  const shm::HeapTable& heaps = endpoint_.heaps();
  std::vector<int> host;
  for (const int rank : local) host.push_back(members_[rank]);
  std::shared_ptr<shm::Region> region = heaps.regions() != nullptr
                                            ? region_in_table(host[0], geometry)
                                            : region_by_descriptor(host, geometry);
  const auto local_rank = static_cast<int>(std::ranges::find(local, rank_) - local.begin());
  auto transport = std::make_unique<ShmTransport>(local_rank, std::move(region), geometry);
  shm_ = transport.get();
  shm_->use(
      {.own = heaps.own(), .others = heaps.others(), .unreadable = [this](int peer, int error) {
         events_.unreadable(local_[peer], error);
       }});
  shm_->use(endpoint_.wait_set(),
            [this](int peer) { return endpoint_.bell_of(members_[local_[peer]]); });
  return transport;
}

// Creates or fetches a region with a file of its own. The first communicator's region is followed
// by room for heaps and all further regions. If there can be no such room, every communicator's
// region is created here.
std::shared_ptr<shm::Region> Paths::region_by_descriptor(std::span<const int> host,
                                                         const shm::Geometry& geometry) {
  Control& control = endpoint_.control();
  shm::HeapTable& heaps = endpoint_.heaps();
  const std::string name = region_name(id_, host[0]);
  Fd memory;
  if (host[0] == members_[rank_]) {
    const uint64_t behind =
        heaps.joined() ? 0 : shm::bytes_for_heaps(geometry.total_bytes(), geometry.ranks);
    memory = shm::Region::create(geometry, behind);
    control.offer(name, memory.get());
    offer_ = Cleanup([&control, name] { control.withdraw(name); });
  } else {
    memory = fetch(host[0], name, host.size());
  }
  std::shared_ptr<shm::Region> region = shm::Region::map(memory, geometry);
  if (!heaps.joined()) heaps.join(memory, geometry.total_bytes(), host, members_[rank_]);
  return region;
}

// Fetches a descriptor. It waits in pieces, each twice as long as the last, so that an abort ends
// the wait.
Fd Paths::fetch(int owner, const std::string& name, size_t local_ranks) const {
  const Deadline deadline = Deadline::after(open_timeout(local_ranks));
  // Each attempt asks again with a longer timeout, because an owner that many ranks ask needs time.
  for (std::chrono::milliseconds piece(200);; piece *= 2) {
    throw_if_aborted_();
    try {
      const auto left = deadline.remaining(piece);
      return endpoint_.control().fetch(owner, name, Deadline::after(left));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timeout || deadline.passed()) throw;
    }
  }
}

std::shared_ptr<shm::Region> Paths::region_in_table(int owner, const shm::Geometry& geometry) {
  shm::RegionTable& table = *endpoint_.heaps().regions();
  if (owner == members_[rank_]) {
    std::shared_ptr<shm::Region> region = table.create(id_, geometry);
    room_ = Cleanup([&table, id = id_] { table.give_back(id); });
    offer_ = Cleanup([&table, id = id_] { table.withdraw(id); });
    return region;
  }
  const Control& control = endpoint_.control();
  Deadline deadline = Deadline::after(open_timeout(local_.size()));
  bool gone = false;
  for (GrowingPause pause(longest_pause(local_.size()));; pause.sleep()) {
    if (std::shared_ptr<shm::Region> region = table.find(id_, owner, geometry)) return region;
    throw_if_aborted_();
    if (control.has_died(owner) || control.has_left(owner)) {
      // The owner may have left because of a death that is not reported yet.
      if (const std::optional<Error> death = control.deaths()) throw Error(*death);
      if (!gone) deadline = Deadline::after(kReportTime);
      gone = true;
    }
    if (!deadline.passed()) continue;
    throw Error(
        gone ? ErrorCode::connection_lost : ErrorCode::timeout,
        cat(control.describe(owner), gone ? " left the job before it created" : " did not create",
            " the shared memory of a new communicator", gone ? "" : " in time"),
        {.cause = "that rank is stuck, slow, or executes other calls"});
  }
}

std::unique_ptr<Transport> Paths::open_tcp() {
  TcpTransport::Hooks hooks;
  Control& control = endpoint_.control();
  hooks.open = [this, &control](int peer, int lane, Renewal renewal) {
    control.open_connection(id_, members_[peer], lane, renewal);
  };
  hooks.lost = events_.lost;
  hooks.corrupted = events_.corrupted;
  if (Faults& faults = endpoint_.faults(); faults.any_swap()) {
    hooks.damage = [&faults](std::span<std::byte> payload) { faults.swap_words(payload); };
  }
  hooks.gone = [this, &control](int peer) {
    return control.has_left(members_[peer]) || control.has_died(members_[peer]);
  };
  std::vector<int> all;
  std::vector<int> on_other_hosts;
  for (size_t r = 0; r < members_.size(); ++r) {
    all.push_back(static_cast<int>(r));
    if (control.peer(members_[r]).host_id != control.peer(members_[rank_]).host_id) {
      on_other_hosts.push_back(static_cast<int>(r));
    }
  }
  TcpTransport::Peers peers{.resumed = on_other_hosts};
  const std::string integrity = settings().get_string("TUTTI_INTEGRITY");
  if (integrity == "auto") peers.checked = on_other_hosts;
  if (integrity == "on") peers.checked = all;
  auto transport = std::make_unique<TcpTransport>(static_cast<int>(members_.size()),
                                                  tcp_streams(rails_), std::move(hooks), peers);
  tcp_ = transport.get();
  return transport;
}

std::unique_ptr<Transport> Paths::open_fabric() {
  auto transport =
      std::make_unique<FabricTransport>(*endpoint_.fabric(), id_, members_, rank_, events_.lost);
  fabric_ = transport.get();
  return transport;
}

void Paths::wait_for_host() {
  if (shm_ == nullptr) return;
  const Deadline deadline = Deadline::after(open_timeout(local_.size()));
  GrowingPause pause(longest_pause(local_.size()));
  for (std::vector<int> missing; !(missing = shm_->missing()).empty();) {
    throw_if_aborted_();
    if (deadline.passed()) {
      const int first = members_[local_[missing.front()]];
      const std::string more =
          missing.size() == 1 ? "" : cat(" and ", missing.size() - 1, " more of this host");
      throw Error(ErrorCode::timeout,
                  cat(endpoint_.control().describe(first), more,
                      " did not attach to the shared memory of a new communicator"),
                  {.cause = "that rank is stopped or stuck, or does not create this communicator",
                   .rank = first});
    }
    pause.sleep();
  }
  offer_.run();
}

void Paths::send_last_bytes(const AbortState& abort, std::chrono::nanoseconds patience) {
  const auto give_up = [&] {
    return patience.count() == 0 ? Deadline::never() : Deadline::after(patience);
  };
  const auto sent = [&] {
    if (tcp_ != nullptr && !tcp_->settled()) return false;
    for (size_t peer = 0; peer < members_.size(); ++peer) {
      if (!transport_->p2p_sent(static_cast<int>(peer))) return false;
    }
    return transport_->collectives_sent();
  };
  transport_->end_sending();
  Deadline silence = give_up();
  GrowingPause pause(kLongestPause);
  while (!abort.raised() && !sent() && !silence.passed()) {
    if (transport_->progress()) {
      silence = give_up();
      pause.reset();
    } else {
      pause.sleep();
    }
  }
  if (fabric_ != nullptr) {
    if (abort.raised()) fabric_->forget_readers();
    fabric_->wait_for_readers(patience);
  }
  if (tcp_ != nullptr && !abort.raised()) {
    endpoint_.last_bytes().add(tcp_->release_outgoing(), patience);
  }
}

void Paths::accept(int peer, int lane, int number, ByteStream socket) {
  if (tcp_ == nullptr) return;
  tcp_->accept(peer, lane, number, std::move(socket));
  endpoint_.wait_set().wake();
}

void Paths::opened(int peer, int lane, ByteStream socket) {
  if (tcp_ == nullptr) return;
  tcp_->opened(peer, lane, std::move(socket));
  endpoint_.wait_set().wake();
}

// ---- memory

// Returns this rank's heap; null if no rank could read it.
std::shared_ptr<shm::Heap> Paths::heap() {
  return shm_ != nullptr ? endpoint_.heaps().share() : nullptr;
}

std::shared_ptr<void> Paths::allocate(size_t bytes) {
  const std::shared_ptr<shm::Heap> heap = this->heap();
  std::byte* const memory = heap ? heap->allocate(bytes) : nullptr;
  if (memory == nullptr) return nullptr;
  return {memory, [heap](std::byte* data) { heap->free(data); }};
}

std::shared_ptr<void> Paths::register_memory(std::span<std::byte> range) {
  const std::shared_ptr<shm::Heap> heap = this->heap();
  if (!heap) return nullptr;
  const uint64_t number = heap->adopt(range);
  return {range.data(), [heap, number](void*) {
            try {
              heap->release(number);
            } catch (const Error& error) {  // the memory stays shared and usable
              log(LogLevel::error, error.what());
            }
          }};
}

bool Paths::is_near(int rank) const {
  return shm_ != nullptr && std::ranges::find(local_, rank) != local_.end();
}

std::optional<uint64_t> Paths::place_of(std::span<const std::byte> memory) {
  const std::shared_ptr<shm::Heap> heap = this->heap();
  if (!heap) return std::nullopt;
  shm::Heap::View view;
  const std::optional<shm::Place> place = heap->find(memory.data(), memory.size(), view);
  if (!place || (place->adopted && !heap->still_adopted(memory))) return std::nullopt;
  return place->offset;
}

std::shared_ptr<std::byte> Paths::map(uint64_t place, size_t bytes) {
  shm::PeerMemory* const others = endpoint_.heaps().others();
  return others != nullptr ? others->map_to_write({place, bytes}) : nullptr;
}

std::unique_ptr<ExposedMemory> Paths::expose(std::span<std::byte> memory) {
  if (fabric_ == nullptr || memory.empty()) return nullptr;
  return expose_memory(*endpoint_.fabric(), memory);
}

std::unique_ptr<RemoteMemory> Paths::reach(int member, std::string_view key) {
  if (fabric_ == nullptr || is_near(member)) return nullptr;
  return reach_memory(*endpoint_.fabric(), members_[static_cast<size_t>(member)], key);
}

// ---- limits

int tcp_streams(int rails) {
  const int64_t streams = settings().get_int("TUTTI_TCP_STREAMS");
  if (streams == 0) return std::min(rails, shm::kMaxLanes);
  if (streams >= 1 && streams <= shm::kMaxLanes) return static_cast<int>(streams);
  throw Error(ErrorCode::invalid_argument,
              cat("TUTTI_TCP_STREAMS=", streams, " is not in the range 0 to ", shm::kMaxLanes));
}

Limits agreed_limits(int ranks, int largest_local, bool any_shm, std::optional<PathClass> far,
                     int rails) {
  const auto near = [&] { return shm::Geometry(largest_local, largest_local).limits(); };
  if (!far) return near();
  const Limits beyond = *far == PathClass::tcp ? TcpTransport::limits(ranks, tcp_streams(rails))
                                               : FabricTransport::limits(ranks);
  return any_shm ? Router::limits(near(), beyond) : beyond;
}

}  // namespace tutti
