// Connects a communicator with the other ranks, and creates further communicators from it (split(),
// create()).

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "base/mix_bits.h"
#include "base/text.h"
#include "collectives/runtime/communicator_impl.h"
#include "topology/layout.h"

namespace tutti::internal {

namespace {

// Mixes all 64 bits, so that ids of concurrent communicators are very unlikely to collide.
uint64_t mix(uint64_t x) { return mix_bits(x + kGolden); }

// Returns the tag of the messages by which the members of a group synchronize. It distinguishes
// groups of different ranks that threads create at the same time. The same ranks in another order
// get the same tag, so that the mismatch is detected.
int tag_of_group(std::span<const int> ranks, int tag) {
  std::vector<uint64_t> words(ranks.begin(), ranks.end());
  std::ranges::sort(words);
  words.push_back(static_cast<uint64_t>(tag));
  return static_cast<int>(mix(fnv_of_words(words)) % (uint64_t{kLargestTag} + 1));
}

}  // namespace

MakeTogether maker(const std::shared_ptr<Engine>& engine) {
  return [&engine](uint64_t id, const std::vector<int>& members, uint64_t epoch) -> MadeTogether {
    const auto own = std::ranges::find(members, engine->control().rank());
    const auto rank = static_cast<int>(own - members.begin());
    try {
      auto made = std::make_shared<CommunicatorImpl>(engine, id, members, rank, epoch);
      std::optional<Error> problem = made->failure();
      return {std::move(made), std::move(problem)};
    } catch (const Error& error) {
      return {nullptr, error};
    }
  };
}

int CommunicatorImpl::member(int world_rank) const {
  return static_cast<int>(std::ranges::find(members_, world_rank) - members_.begin());
}

void CommunicatorImpl::on_connection(int world_rank, int lane, int number, ByteStream socket) {
  const int peer = member(world_rank);
  if (peer < size()) early_.accept(peer, lane, number, std::move(socket));
}

void CommunicatorImpl::on_opened(int world_rank, int lane, ByteStream socket) {
  const int peer = member(world_rank);
  if (paths_ && peer < size()) paths_->opened(peer, lane, std::move(socket));
}

std::vector<Place> CommunicatorImpl::places() const {
  std::vector<Place> places;
  for (const int rank : members_) {
    const PeerInfo& peer = engine_->control().peer(rank);
    places.push_back({.host = peer.host_id, .domain = peer.domain, .rack = peer.rack});
  }
  return places;
}

void CommunicatorImpl::open_transport() {
  if (size() == 1) return;
  const auto throw_if_aborted = [this] {
    abort_.throw_if_raised();
    if (origin_.parent != nullptr) origin_.parent->abort_.throw_if_raised();
  };
  paths_ = std::make_unique<Paths>(engine_->endpoint(), id_, members_, rank_, path_events(),
                                   throw_if_aborted);
  early_.open(*paths_);
  transport_ = &paths_->transport();
  messages_.use(transport_);
  abort_.add_waker([this] { engine_->wake(); });
  const std::vector<Place> places = this->places();
  const Layout layout = Layout::of(places);
  const auto plans_over = [&](const Layout& over) {
    Plans::Kind kind;
    kind.shape = {.ranks = size(), .rank = rank_, .root = 0, .layout = over};
    kind.hosts = Hosts::of(places);
    kind.limits = paths_->limits();
    kind.any_shm = paths_->any_shm();
    kind.far = paths_->far();
    kind.lends = paths_->lends();
    return engine_->plans().plans_for(kind);
  };
  compiler_.use(plans_over(layout), plans_over(layout.in_rank_order()));
}

Paths::Events CommunicatorImpl::path_events() {
  Paths::Events events;
  events.unreadable = [this](int peer, int error) {
    raise_everywhere(system_error(cat(describe(rank_), " reading the buffers of ", describe(peer)),
                                  error, {.rank = members_[peer]}));
  };
  events.lost = [this](int peer, bool sending, const std::string& text) {
    const std::string what =
        cat("the connection of ", describe(rank_), " with ", describe(peer), " broke: ", text);
    if (!engine_->control().has_left(members_[peer])) {
      engine_->control().suspect(id_, members_[peer], what);
    } else if (sending) {
      raise_consequence(Error(
          ErrorCode::mismatch, what,
          {.cause = "that rank has left the job: it made fewer calls", .rank = members_[peer]}));
    } else {
      raise_consequence(Error(ErrorCode::connection_lost, what,
                              {.cause = "that rank has left the job, and its host or network "
                                        "failed before its last bytes arrived",
                               .rank = members_[peer]}));
    }
  };
  events.corrupted = [this](int peer, const std::string& text) {
    raise_everywhere(Error(
        ErrorCode::corrupted,
        cat("data from ", describe(peer), " to ", describe(rank_),
            " was corrupted in transit: ", text),
        {.cause = "a network card, switch, driver or offload between the two hosts damages "
                  "packets in a way that TCP's checksum does not show, memory of one of the two "
                  "is faulty, or the program wrote to a buffer while it was being sent",
         .remedy = "check the error counters of both network cards (ethtool -S), disable their "
                   "offloads (ethtool -K), test the memory, and restart from the last checkpoint; "
                   "TUTTI_INTERFACE selects another network",
         .rank = members_[peer]}));
  };
  events.abort = [this] { abort("requested by TUTTI_FAULT"); };
  return events;
}

StallWatch::Channel CommunicatorImpl::stall_channel() {
  return {
      .ask = [this](int peer, uint32_t call) { engine_->control().ask(id_, members_[peer], call); },
      .way_to = [this](int peer) { return engine_->control().way_to(members_[peer]); },
      .describe = [this](int rank) { return engine_->control().describe(rank); }};
}

PointToPoint::Owner CommunicatorImpl::owner_of_messages() {
  return {
      .abort = abort_,
      .may_start = [this](Operation& operation) { return may_start(operation); },
      .completed = [this](Operation& operation) { complete(operation); },
      .abandoned = [this](Operation& operation) { abandon(operation); },
      .failed = [this](const Error& error) { raise_everywhere(error); },
      .unexpected = [this](const Operation& operation,
                           const Unexpected& message) { report_unexpected(operation, message); },
      .on_mismatch =
          [this](const Operation& receive, int source, uint32_t call, const Signature& theirs) {
            raise_mismatch(receive.number, receive.compiled->signature, source, call, theirs);
          },
      .compiled =
          [this](Buffer buffer, int source, const Signature& message) {
            Request request = Request::recv(buffer, source);
            request.own = message.own;
            return compiler_.compiled(request, {.tag = message.root});
          },
      .received = tally_.received()};
}

// Splits the communicator. All members make the calls of split() in the same order, so they compute
// equal ids without communication.
std::shared_ptr<CommunicatorImpl> CommunicatorImpl::split(int color, int key) {
  return split_off(color, key, {.parent = this});
}

std::shared_ptr<CommunicatorImpl> CommunicatorImpl::split_off(int color, int key, Origin origin) {
  struct Choice {
    int64_t color;
    int64_t key;
  };
  const Choice mine{color, key};
  const Control::Making making(engine_->control());  // others may finish before this rank
  std::vector<Choice> choices(size());
  uint32_t ordinal = 0;
  {
    const std::unique_lock lock = lock_for_call();
    ordinal = ++splits_made_;
  }
  const std::shared_ptr<Operation> gathering = start(
      Request::all_gather({&mine, 2, DType::i64}, {choices.data(), 2 * choices.size(), DType::i64}),
      {});
  StallState stall;
  if (gathering) wait(*gathering, Deadline::never(), stall);
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
  return std::make_shared<CommunicatorImpl>(engine_, id, std::move(chosen), new_rank, epoch_,
                                            origin);
}

// Creates a communicator of some ranks. Non-members do not take part. The rounds of meet() form a
// barrier, so that each member is ready before a message of the new communicator reaches it.
std::shared_ptr<CommunicatorImpl> CommunicatorImpl::create(std::span<const int> ranks, int tag) {
  check_group(ranks, tag);
  const Control::Making making(engine_->control());
  std::vector<uint64_t> words(ranks.begin(), ranks.end());
  words.push_back(static_cast<uint64_t>(tag));
  const uint64_t group = fnv_of_words(words);
  uint64_t id = mix(mix(id_) + group);  // differs from ids of split()
  {
    const std::unique_lock lock = lock_for_call();
    id = mix(id + ++groups_made_[group]);
  }
  const auto mine = static_cast<size_t>(std::ranges::find(ranks, rank_) - ranks.begin());
  const int meeting = tag_of_group(ranks, tag);
  for (size_t distance = 1; distance < ranks.size(); distance *= 2) {
    meet(ranks[(mine + distance) % ranks.size()],
         ranks[(mine + ranks.size() - distance) % ranks.size()], meeting, id);
  }
  std::vector<int> chosen;
  for (const int r : ranks) chosen.push_back(members_[static_cast<size_t>(r)]);
  return std::make_shared<CommunicatorImpl>(engine_, id, std::move(chosen), static_cast<int>(mine),
                                            epoch_, Origin{.parent = this});
}

void CommunicatorImpl::check_group(std::span<const int> ranks, int tag) const {
  const auto refuse = [](const std::string& problem) {
    throw Error(
        ErrorCode::invalid_argument, "create: " + problem,
        {.remedy =
             "call create() with the same list on every rank in the list, and on no other rank"});
  };
  if (tag < 0 || tag > kLargestTag) {
    throw Error(ErrorCode::invalid_argument,
                cat("create: tag ", tag, " is not in the range 0 to ", kLargestTag));
  }
  std::set<int> seen;
  for (const int r : ranks) {
    if (r < 0 || r >= size()) refuse(cat("rank ", r, " is not in the range 0 to ", size() - 1));
    if (!seen.insert(r).second) refuse(cat("rank ", r, " appears twice in the list of members"));
  }
  if (!seen.contains(rank_)) refuse(cat("rank ", rank_, " calls create(), but is not in the list"));
}

// Takes part in one round of a dissemination barrier that also checks that all ranks make the same
// communicator.
void CommunicatorImpl::meet(int next, int previous, int tag, uint64_t id) {
  uint64_t theirs = 0;
  Request receive = Request::recv({&theirs, 1, DType::u64}, previous);
  Request send = Request::send({&id, 1, DType::u64}, next);
  receive.own = send.own = true;
  const std::shared_ptr<Operation> receiving = start(receive, {.tag = tag});
  run(send, {.tag = tag});
  StallState stall;
  wait(*receiving, Deadline::never(), stall);
  if (theirs == id) return;
  raise_everywhere(
      Error(ErrorCode::mismatch,
            cat(describe(rank_), " and ", describe(previous),
                " create communicators of the same members in different orders, or one of them has "
                "created more"),
            {.remedy = "pass the same list to create() on all members; tags distinguish "
                       "communicators that several threads create at the same time",
             .rank = members_[previous]}));
  abort_.throw_if_raised();
}

// Sends the last bytes, and detaches the communicator from the control channel. From now on,
// questions of peers get an empty answer, because this rank makes no more calls.
void CommunicatorImpl::close_transport() {
  leaving_.store(true);
  if (paths_) paths_->send_last_bytes(abort_, timeout_);
  engine_->control().detach(id_);
}

}  // namespace tutti::internal
