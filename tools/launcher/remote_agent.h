// The agent of another host, reached through a remote shell: `RSH HOST THIS_PROGRAM agent`.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

#include "base/deadline.h"
#include "base/fd.h"
#include "tools/launcher/agent.h"
#include "tools/launcher/event_loop.h"
#include "tools/launcher/protocol.h"

namespace tutti::tool {

class RemoteAgent : public Agent {
 public:
  // Starts the remote shell. Throws StartError if it is missing. `loop` and `sink` must outlive the
  // agent.
  RemoteAgent(EventLoop& loop, AgentSink& sink, const HostJob& job);
  // Closes the agent's input, which makes it end its ranks, and waits for the remote shell.
  ~RemoteAgent() override;

  void listen() override;
  void start(const std::string& master_address, uint16_t master_port) override;
  void tell(const RankExit& exit) override;
  void signal_ranks(int number) override;
  void look_at_clock() override;
  void let_go() override { to_.reset(); }
  bool finished() override { return finished_; }

 private:
  void on_readable();
  void on_line(const std::string& line);
  void on_event(const Json& event);
  void on_lost();

  EventLoop& loop_;
  AgentSink& sink_;
  std::string host_;
  std::string shell_;    // name of the remote shell, for messages
  bool is_alone_;        // true if no other hosts are reached through this one
  std::set<int> ranks_;  // living ranks of this host and of the hosts reached through it
  pid_t pid_ = -1;
  Fd to_;
  Fd from_;
  LineReader lines_{-1};
  bool has_begun_ = false;  // true once the agent has confirmed that it has its job
  Deadline say_at_;         // time at which to report that the agent has not confirmed
  Deadline begin_by_;
  bool finished_ = false;
};

}  // namespace tutti::tool
