#include "transport/bootstrap/client_table.h"

#include <algorithm>
#include <utility>

namespace tutti::bootstrap {

// Each other rank may open several connections before this one is ready.
ClientTable::ClientTable(int world_size)
    : max_kept_(std::max<size_t>(64, static_cast<size_t>(world_size) * 16)) {}

std::vector<ClientTable::Answer> ClientTable::attach(uint64_t communicator,
                                                     std::vector<int> members,
                                                     ControlClient* client) {
  std::vector<Answer> answers;
  std::lock_guard lock(mutex_);
  for (const auto& [rank, error] : deaths_) {
    if (std::ranges::find(members, rank) != members.end()) client->on_abort(error);
  }
  entries_[communicator] = {std::move(members), client};
  detached_.erase(communicator);
  for (const auto& [aborted, error] : kept_aborts_) {
    if (aborted == communicator) client->on_abort(error);
  }
  for (Kept& kept : kept_) {
    if (kept.communicator != communicator) continue;
    if (kept.socket) {
      client->on_connection(kept.from, kept.lane, std::move(kept.socket));
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
  if (entries_.erase(communicator) > 0) detached_.insert(communicator);
}

bool ClientTable::attached(uint64_t communicator) const {
  std::lock_guard lock(mutex_);
  return find(communicator) != nullptr;
}

void ClientTable::abort(uint64_t communicator, const Error& error) {
  std::lock_guard lock(mutex_);
  if (ControlClient* client = find(communicator)) {
    client->on_abort(error);
  } else if (!was_detached(communicator)) {
    kept_aborts_.emplace_back(communicator, error);
    if (kept_aborts_.size() > max_kept_) kept_aborts_.pop_front();
  }
}

bool ClientTable::rank_died(int rank, const Error& error) {
  std::lock_guard lock(mutex_);
  if (!deaths_.emplace(rank, error).second) return false;
  for (const auto& [communicator, entry] : entries_) {
    if (std::ranges::find(entry.members, rank) != entry.members.end()) {
      entry.client->on_abort(error);
    }
  }
  return true;
}

std::optional<Error> ClientTable::death_of(int rank) const {
  std::lock_guard lock(mutex_);
  const auto found = deaths_.find(rank);
  return found == deaths_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<ClientTable::Answer> ClientTable::question(uint64_t communicator, int from,
                                                         uint32_t call) {
  std::lock_guard lock(mutex_);
  if (ControlClient* client = find(communicator)) {
    return Answer{communicator, from, call, client->on_question(from, call)};
  }
  if (was_detached(communicator)) return Answer{communicator, from, call, ""};
  keep({.communicator = communicator, .from = from, .call = call});
  return std::nullopt;
}

void ClientTable::answer(uint64_t communicator, int from, uint32_t call, std::string_view text) {
  std::lock_guard lock(mutex_);
  if (ControlClient* client = find(communicator)) client->on_answer(from, call, text);
}

void ClientTable::connection(uint64_t communicator, int from, int lane, Fd socket) {
  std::lock_guard lock(mutex_);
  if (ControlClient* client = find(communicator)) {
    client->on_connection(from, lane, std::move(socket));
  } else if (!was_detached(communicator)) {
    keep({.communicator = communicator, .from = from, .lane = lane, .socket = std::move(socket)});
  }
}

void ClientTable::opened(uint64_t communicator, int to, int lane, Fd socket) {
  std::lock_guard lock(mutex_);
  if (ControlClient* client = find(communicator)) client->on_opened(to, lane, std::move(socket));
}

void ClientTable::abort_all(const Error& error) {
  std::lock_guard lock(mutex_);
  for (const auto& [communicator, entry] : entries_) entry.client->on_abort(error);
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
