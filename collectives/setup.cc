// How a communicator comes by its transport, and how it lets go of it.

#include <algorithm>
#include <map>
#include <thread>

#include "base/settings.h"
#include "base/text.h"
#include "collectives/communicator_impl.h"
#include "collectives/limits.h"
#include "topology/domain.h"
#include "transport/fault/fault_transport.h"
#include "transport/router.h"

namespace tutti::internal {

namespace {

// Ranks of one host that open a communicator may share a few cores.
std::chrono::milliseconds open_timeout(size_t local_ranks) {
  return std::chrono::seconds(30) + local_ranks * std::chrono::milliseconds(100);
}
constexpr std::chrono::microseconds kLongestPause(1000);

std::string region_name(uint64_t id, int owner) { return cat("region ", id, " of ", owner); }

// splitmix64: ids of communicators that exist side by side do not meet by chance.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

int CommunicatorImpl::member(int world_rank) const {
  return static_cast<int>(std::ranges::find(members_, world_rank) - members_.begin());
}

void CommunicatorImpl::on_connection(int world_rank, int lane, Fd socket) {
  const int peer = member(world_rank);
  if (tcp_ == nullptr || peer >= size()) return;
  tcp_->accept(peer, lane, std::move(socket));
  engine_->wake();
}

void CommunicatorImpl::on_opened(int world_rank, int lane, Fd socket) {
  const int peer = member(world_rank);
  if (tcp_ == nullptr || peer >= size()) return;
  tcp_->opened(peer, lane, std::move(socket));
  engine_->wake();
}

std::vector<Place> CommunicatorImpl::places() const {
  std::vector<Place> places;
  for (const int rank : members_) {
    const PeerInfo& peer = engine_->control().peer(rank);
    places.push_back({.host = peer.host_id, .domain = peer.domain});
  }
  return places;
}

// Everything here is decided from what all ranks know alike: the table of hosts and the settings.
void CommunicatorImpl::open_transport() {
  const Control& control = engine_->control();
  const std::vector<Place> places = this->places();
  group_ = group_of(places);
  if (size() == 1) {
    limits_ = {.lanes = 1, .slots = 1, .message_bytes = 1 << 20, .p2p_message_bytes = 1 << 20};
    return;
  }
  std::map<std::string, std::vector<int>> hosts;
  for (int r = 0; r < size(); ++r) hosts[control.peer(members_[r]).host_id].push_back(r);
  const std::string wanted = settings().get_string("TUTTI_TRANSPORT");
  if (wanted == "shm" && hosts.size() > 1) {
    throw Error(ErrorCode::unsupported,
                cat("TUTTI_TRANSPORT=shm, but the ranks are on ", hosts.size(),
                    " hosts, or of several users or containers, which share no memory"),
                {.remedy = "set TUTTI_TRANSPORT to auto or tcp"});
  }
  size_t largest = 1;
  for (const auto& [host, ranks] : hosts) largest = std::max(largest, ranks.size());
  const std::vector<int>& local = hosts[control.peer(members_[rank_]).host_id];
  const bool any_shm = wanted != "tcp" && largest > 1;
  const bool any_tcp = wanted == "tcp" || hosts.size() > 1;

  std::unique_ptr<Transport> near;
  std::unique_ptr<Transport> far;
  if (any_tcp) far = open_tcp();
  if (any_shm && local.size() > 1) near = open_shm(local, static_cast<int>(largest));
  limits_ = agreed_limits(static_cast<int>(largest), any_shm, far.get());
  transport_name_ = any_shm && any_tcp ? "shm+tcp" : (any_shm ? "shm" : "tcp");

  if (near && far) {
    std::vector<int> near_rank(size(), -1);
    for (size_t i = 0; i < local.size(); ++i) near_rank[local[i]] = static_cast<int>(i);
    transport_ = std::make_unique<Router>(std::move(near), std::move(near_rank), std::move(far));
  } else {
    transport_ = near ? std::move(near) : std::move(far);
  }
  const std::optional<Fault> fault = parse_fault(settings().get_string("TUTTI_FAULT"));
  if (fault && fault->rank == members_[rank_]) {
    transport_ = std::make_unique<FaultTransport>(std::move(transport_), *fault);
  }
  abort_.add_waker([this] { engine_->wake(); });
  const Machine machine{.model = engine_->cost_model(),
                        .limits = limits_,
                        .hosts = Hosts::of(places),
                        .near_shm = any_shm};
  planner_ = std::make_unique<Planner>(shape(0), machine, engine_->algorithms());
}

// Nobody goes on (and perhaps away) before all have got the memory.
void CommunicatorImpl::wait_for_local_ranks() {
  if (shm_ == nullptr) return;
  const Deadline deadline = Deadline::after(open_timeout(static_cast<size_t>(local_ranks_)));
  std::chrono::microseconds pause(20);
  while (shm_->attached() < local_ranks_) {
    abort_.throw_if_raised();
    if (deadline.passed()) {
      throw Error(ErrorCode::timeout,
                  cat("only ", shm_->attached(), " of ", local_ranks_,
                      " ranks on this host attached to the shared memory of a new communicator"),
                  {.cause = "not all ranks take part in making it"});
    }
    // Ever longer: many ranks on few cores would keep the last one from its work.
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
  withdraw_memory();
}

void CommunicatorImpl::withdraw_memory() {
  if (memory_) engine_->control().withdraw(region_name(id_, members_[rank_]));
  memory_.reset();
}

std::unique_ptr<Transport> CommunicatorImpl::open_shm(const std::vector<int>& local,
                                                      int largest_group) {
  const shm::Geometry geometry(static_cast<int>(local.size()), largest_group);
  const int owner = local[0];
  const auto ranks = static_cast<int>(local.size());
  HeapTable& heaps = engine_->heaps();
  if (owner == rank_) {
    const uint64_t behind =
        heaps.joined() ? 0 : shm::bytes_for_heaps(geometry.total_bytes(), ranks);
    memory_ = shm::Region::create(geometry, behind);
    engine_->control().offer(region_name(id_, members_[owner]), memory_.get());
  } else {
    memory_ = engine_->control().fetch(members_[owner], region_name(id_, members_[owner]),
                                       Deadline::after(open_timeout(local.size())));
  }
  const auto local_rank = static_cast<int>(std::ranges::find(local, rank_) - local.begin());
  auto transport =
      std::make_unique<ShmTransport>(local_rank, shm::Region::map(memory_, geometry), geometry);
  shm_ = transport.get();
  if (!heaps.joined()) heaps.join(memory_, geometry.total_bytes(), ranks, local_rank);
  shm_->use({.own = heaps.own(),
             .others = heaps.others(),
             .unreadable = [this, local](int peer, int error) {
               raise_everywhere(system_error(
                   cat(describe(rank_), " reading the buffers of ", describe(local[peer])), error));
             }});
  local_ranks_ = ranks;
  std::vector<std::string> bells;
  for (const int rank : local) bells.push_back(engine_->bell_of(members_[rank]));
  shm_->use(engine_->wait_set(), std::move(bells));
  return transport;
}

std::unique_ptr<Transport> CommunicatorImpl::open_tcp() {
  TcpTransport::Hooks hooks;
  hooks.open = [this](int peer, int lane) {
    engine_->control().open_connection(id_, members_[peer], lane);
  };
  hooks.lost = [this](int peer, bool sending, const std::string& text) {
    const std::string what =
        cat("the connection of ", describe(rank_), " with ", describe(peer), " broke: ", text);
    if (!engine_->control().has_left(members_[peer])) {
      engine_->control().suspect(id_, members_[peer], what);
    } else if (sending) {
      raise_consequence(Error(ErrorCode::mismatch, what,
                              {.cause = "that rank has left the job: it made fewer calls"}));
    } else {
      raise_consequence(Error(
          ErrorCode::connection_lost, what,
          {.cause = "that rank has left the job, and its host or its network went away before its "
                    "last bytes had arrived"}));
    }
  };
  auto transport = std::make_unique<TcpTransport>(size(), tcp_streams(), std::move(hooks));
  tcp_ = transport.get();
  return transport;
}

// All members make the same splits of a communicator in the same order, so the new one's id is the
// same everywhere without a word.
std::shared_ptr<CommunicatorImpl> CommunicatorImpl::split(int color, int key) {
  struct Choice {
    int64_t color;
    int64_t key;
  };
  const Choice mine{color, key};
  const Control::Making making(engine_->control());  // others may be through before this rank
  std::vector<Choice> choices(size());
  uint32_t ordinal = 0;
  {
    const std::unique_lock lock = lock_for_call();
    ordinal = ++splits_made_;
  }
  const std::shared_ptr<Operation> gathering = start(
      Request::all_gather({&mine, 2, DType::i64}, {choices.data(), 2 * choices.size(), DType::i64}),
      {});
  Patience patience;
  if (gathering) wait(*gathering, Deadline::never(), patience);
  if (color < 0) return nullptr;

  std::vector<int> chosen;
  for (int r = 0; r < size(); ++r) {
    if (choices[r].color == color) chosen.push_back(r);
  }
  std::ranges::stable_sort(chosen, {}, [&](int r) { return choices[r].key; });
  const auto new_rank = static_cast<int>(std::ranges::find(chosen, rank_) - chosen.begin());
  for (int& r : chosen) r = members_[r];
  uint64_t id = id_;
  for (const uint64_t part : {uint64_t{ordinal}, static_cast<uint64_t>(color)}) id = mix(id + part);
  return std::make_shared<CommunicatorImpl>(engine_, id, std::move(chosen), new_rank);
}

// What was committed still goes out, as long as somebody takes it. Whoever asks hears meanwhile
// that this rank makes no more calls.
void CommunicatorImpl::send_last_bytes() {
  constexpr std::chrono::microseconds kShortestNap(20);
  constexpr std::chrono::microseconds kLongestNap(1000);  // the kernel has bytes to send meanwhile
  const auto give_up = [this] {
    return timeout_.count() == 0 ? Deadline::never() : Deadline::after(timeout_);
  };
  const auto sent = [this] {
    for (int peer = 0; peer < size(); ++peer) {
      if (!transport_->p2p_sent(peer)) return false;
    }
    return transport_->collectives_sent();
  };
  leaving_.store(true);
  transport_->end_sending();
  Deadline silence = give_up();
  auto nap = kShortestNap;
  while (!abort_.raised() && !sent() && !silence.passed()) {
    if (transport_->progress()) {
      silence = give_up();
      nap = kShortestNap;
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, kLongestNap);
    }
  }
  if (tcp_ != nullptr && !abort_.raised()) {
    engine_->last_bytes().add(tcp_->release_outgoing(), timeout_);
  }
}

void CommunicatorImpl::close_transport() {
  if (transport_) send_last_bytes();
  withdraw_memory();
  engine_->control().detach(id_);
}

}  // namespace tutti::internal
