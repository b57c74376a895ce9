// Combines several agents behind the interface of one agent: the agent of this host, and those that
// this process started on other hosts.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tools/launcher/agent.h"
#include "tools/launcher/event_loop.h"

namespace tutti::tool {

class Agents : public Agent, public AgentSink {
 public:
  // Creates the object without agents; `loop` and `sink` must outlive it.
  Agents(EventLoop& loop, AgentSink& sink) : loop_(loop), sink_(sink) {}
  ~Agents() override {
    for (const auto& agent : agents_) agent->let_go();
  }

  // Adds this host's agent. The agent of rank 0 must be added first if rank 0 is below this
  // process. Throws StartError.
  void add_local(HostJob job);
  void add_remote(const HostJob& job);

  void listen() override { agents_.front()->listen(); }
  void start(const std::string& master_address, uint16_t master_port) override;
  void tell(const RankExit& exit) override;
  void signal_ranks(int number) override;
  bool finished() override;
  void look_at_clock() override;

  void on_listening(const std::string& address, uint16_t port) override;
  void on_output(int rank, Stream stream, std::string_view bytes, bool end) override;
  void on_exit(const RankExit& exit) override;
  void on_failure(const std::string& text, int code, const std::vector<int>& lost) override;

 private:
  void own(const HostJob& job);

  EventLoop& loop_;
  AgentSink& sink_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::map<int, size_t> agent_of_;  // key: rank; value: index of its agent
};

// Arranges hosts in a tree in which no host starts more than `fanout` agents. The first host
// remains the first one of the top level.
std::vector<HostJob> make_tree(std::vector<HostJob> jobs, int fanout);

}  // namespace tutti::tool
