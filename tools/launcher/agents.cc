#include "tools/launcher/agents.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tools/launcher/local_agent.h"
#include "tools/launcher/remote_agent.h"

namespace tutti::tool {

void Agents::own(const HostJob& job) {
  for (const int rank : job.ranks) agent_of_[rank] = agents_.size();
  for (const HostJob& below : job.below) own(below);
}

void Agents::add_local(HostJob job) {
  const std::vector<HostJob> below = std::exchange(job.below, {});
  own(job);
  agents_.push_back(std::make_unique<LocalAgent>(loop_, *this, std::move(job)));
  for (const HostJob& one : below) add_remote(one);
}

void Agents::add_remote(const HostJob& job) {
  own(job);
  agents_.push_back(std::make_unique<RemoteAgent>(loop_, *this, job));
}

void Agents::start(const std::string& master_address, uint16_t master_port) {
  // A copy, because the agent's own string may change while agents start.
  const std::string master = master_address;  // NOLINT(performance-unnecessary-copy-initialization)
  for (const auto& agent : agents_) agent->start(master, master_port);
}

void Agents::tell(const RankExit& exit) {
  for (const auto& agent : agents_) agent->tell(exit);
}

void Agents::signal_ranks(int number) {
  for (const auto& agent : agents_) agent->signal_ranks(number);
}

bool Agents::finished() {
  return std::ranges::all_of(agents_, [](const auto& agent) { return agent->finished(); });
}

void Agents::look_at_clock() {
  for (const auto& agent : agents_) agent->look_at_clock();
}

void Agents::on_listening(const std::string& address, uint16_t port) {
  sink_.on_listening(address, port);
}

void Agents::on_output(int rank, Stream stream, std::string_view bytes, bool end) {
  sink_.on_output(rank, stream, bytes, end);
}

void Agents::on_exit(const RankExit& exit) {
  const auto from = agent_of_.find(exit.rank);
  for (size_t i = 0; i < agents_.size(); ++i) {
    // The ranks of the host on which the rank ended have already been notified.
    if (from == agent_of_.end() || i != from->second) agents_[i]->tell(exit);
  }
  sink_.on_exit(exit);
}

void Agents::on_failure(const std::string& text, int code, const std::vector<int>& lost) {
  sink_.on_failure(text, code, lost);
}

std::vector<HostJob> make_tree(std::vector<HostJob> jobs, int fanout) {
  const size_t branches = static_cast<size_t>(std::max(1, fanout));
  if (jobs.size() <= branches) return jobs;
  std::vector<HostJob> tree;
  auto next = std::make_move_iterator(jobs.begin());
  for (size_t i = 0; i < branches; ++i) {
    const size_t size = jobs.size() / branches + (i < jobs.size() % branches ? 1 : 0);
    HostJob head = *next++;
    const auto end = next + static_cast<std::ptrdiff_t>(size - 1);
    head.below = make_tree(std::vector<HostJob>(next, end), fanout);
    next = end;
    tree.push_back(std::move(head));
  }
  return tree;
}

}  // namespace tutti::tool
