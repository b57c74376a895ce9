#include "transport/bootstrap/control/client_table.h"

#include <algorithm>
#include <utility>

namespace tutti::bootstrap {

// The limit is high because each other rank may open several connections before this rank is ready.
ClientTable::ClientTable(int world_size)
    : max_kept_(std::max<size_t>(64, static_cast<size_t>(world_size) * 16)) {}

std::vector<ClientTable::Answer> ClientTable::attach(uint64_t communicator,
                                                     std::vector<int> members,
                                                     ControlClient* client) {
  std::vector<Answer> answers;
  std::lock_guard lock(mutex_);
  const auto is_member = [&](const Death& death) {
    return std::ranges::find(members, death.rank) != members.end();
  };
  if (std::ranges::any_of(deaths_, is_member)) {
    client->on_abort(
        explain_deaths([&](const Death& death) { return !death.settled || is_member(death); }));
  }
  entries_[communicator] = {std::move(members), client};
  any_attached_ = true;
  for (const auto& [aborted, error] : kept_aborts_) {
    if (aborted == communicator) client->on_abort(error);
  }
  for (Kept& kept : kept_) {
    if (kept.communicator != communicator) continue;
    if (kept.socket) {
      client->on_connection(kept.from, kept.lane, kept.number, std::move(kept.socket));
    } else {
      answers.push_back(
          {communicator, kept.from, kept.call, client->on_question(kept.from, kept.call)});
    }
  }
  std::erase_if(kept_, [&](const Kept& kept) { return kept.communicator == communicator; });
  std::erase_if(kept_aborts_, [&](const auto& kept) { return kept.first == communicator; });
  return answers;
}

void ClientTable::detach(uint64_t communicator) {
  std::lock_guard lock(mutex_);
  if (ControlClient* client = find(communicator)) {
    past_.add(client->activity());
    past_.current.clear();
    past_.waits_for.clear();
  }
  entries_.erase(communicator);
}

void ClientTable::expect() {
  std::lock_guard lock(mutex_);
  ++making_;
}

std::vector<ClientTable::Answer> ClientTable::stop_expecting() {
  std::vector<Answer> answers;
  std::lock_guard lock(mutex_);
  if (--making_ > 0) return answers;
  for (const Kept& kept : kept_) {
    if (!kept.socket) answers.push_back({kept.communicator, kept.from, kept.call, ""});
  }
  kept_.clear();
  kept_aborts_.clear();
  return answers;
}

bool ClientTable::attached(uint64_t communicator) const {
  std::lock_guard lock(mutex_);
  return find(communicator) != nullptr;
}

void ClientTable::abort(uint64_t communicator, const Error& error) {
  std::lock_guard lock(mutex_);
  if (ControlClient* client = find(communicator)) {
    client->on_abort(error);
  } else if (may_come()) {
    kept_aborts_.emplace_back(communicator, error);
    if (kept_aborts_.size() > max_kept_) kept_aborts_.pop_front();
  }
}

bool ClientTable::rank_died(const Death& death) {
  std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(deaths_, death.rank, &Death::rank);
  if (known != deaths_.end()) {
    return death.certain && !std::exchange(known->certain, true);
  }
  deaths_.push_back(death);
  return true;
}

void ClientTable::report_deaths() {
  std::lock_guard lock(mutex_);
  const std::span<const Death> heard =
      std::span(deaths_).subspan(std::exchange(deaths_reported_, deaths_.size()));
  for (const auto& [communicator, entry] : entries_) {
    const auto is_member = [&members = entry.members](const Death& death) {
      return std::ranges::find(members, death.rank) != members.end();
    };
    if (std::ranges::any_of(heard, is_member)) entry.client->on_abort(explain_deaths(is_member));
  }
}

std::vector<Death> ClientTable::all_deaths() const {
  std::lock_guard lock(mutex_);
  return deaths_;
}

bool ClientTable::has_certainly_died(int rank) const {
  std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(deaths_, rank, &Death::rank);
  return known != deaths_.end() && known->certain;
}

void ClientTable::settle_deaths(std::span<const int> ranks) {
  std::lock_guard lock(mutex_);
  for (Death& death : deaths_) {
    death.settled |= std::ranges::find(ranks, death.rank) != ranks.end();
  }
}

std::optional<Error> ClientTable::deaths() const {
  std::lock_guard lock(mutex_);
  if (std::ranges::all_of(deaths_, &Death::settled)) return std::nullopt;
  return explain_deaths([](const Death&) { return false; });
}

// Builds the error. It omits processes that exited on their own after the first death, because that
// death may have made them exit.
Error ClientTable::explain_deaths(const std::function<bool(const Death&)>& settled_too) const {
  const Death* first = nullptr;
  std::string text;
  bool several = false;
  for (const Death& death : deaths_) {
    if (death.settled && !settled_too(death)) continue;
    if (first == nullptr) {
      first = &death;
      text = death.text;
    } else if (!death.by_itself) {
      text += "; " + death.text;
      several = true;
    }
  }
  return Error(
      ErrorCode::rank_died, text,
      {.remedy = several ? "check the output of those ranks" : "check the output of that rank",
       .rank = first->rank});
}

std::optional<ClientTable::Answer> ClientTable::question(uint64_t communicator, int from,
                                                         uint32_t call) {
  std::lock_guard lock(mutex_);
  if (ControlClient* client = find(communicator)) {
    return Answer{communicator, from, call, client->on_question(from, call)};
  }
  if (!may_come()) return Answer{communicator, from, call, ""};
  // A waiting rank repeats its question, which must not evict connections.
  const auto same = std::ranges::find_if(kept_, [&](const Kept& kept) {
    return !kept.socket && kept.communicator == communicator && kept.from == from;
  });
  if (same == kept_.end()) {
    keep({.communicator = communicator, .from = from, .call = call});
  } else {
    same->call = call;
  }
  return std::nullopt;
}

void ClientTable::answer(uint64_t communicator, int from, uint32_t call, std::string_view text) {
  std::lock_guard lock(mutex_);
  if (ControlClient* client = find(communicator)) client->on_answer(from, call, text);
}

void ClientTable::connection(uint64_t communicator, int from, int lane, int number,
                             ByteStream socket) {
  std::lock_guard lock(mutex_);
  if (ControlClient* client = find(communicator)) {
    client->on_connection(from, lane, number, std::move(socket));
  } else if (may_come()) {
    keep({.communicator = communicator,
          .from = from,
          .lane = lane,
          .number = number,
          .socket = std::move(socket)});
  }
}

void ClientTable::opened(uint64_t communicator, int to, int lane, ByteStream socket) {
  std::lock_guard lock(mutex_);
  if (ControlClient* client = find(communicator)) client->on_opened(to, lane, std::move(socket));
}

Activity ClientTable::activity() const {
  std::lock_guard lock(mutex_);
  Activity all = past_;
  for (const auto& [communicator, entry] : entries_) all.add(entry.client->activity());
  return all;
}

void ClientTable::abort_all(const Error& error) {
  std::lock_guard lock(mutex_);
  for (const auto& [communicator, entry] : entries_) entry.client->on_abort(error);
}

size_t ClientTable::entries() const {
  std::lock_guard lock(mutex_);
  return entries_.size() + kept_.size() + kept_aborts_.size() + deaths_.size();
}

ControlClient* ClientTable::find(uint64_t communicator) const {
  const auto found = entries_.find(communicator);
  return found == entries_.end() ? nullptr : found->second.client;
}

void ClientTable::keep(Kept kept) {
  kept_.push_back(std::move(kept));
  if (kept_.size() > max_kept_) kept_.pop_front();
}

}  // namespace tutti::bootstrap
