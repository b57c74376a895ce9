// Starts the ranks of this host, reads their output, notifies them of failures, and ends them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "tools/launcher/address.h"
#include "tools/launcher/agent.h"
#include "tools/launcher/child.h"
#include "tools/launcher/event_loop.h"
#include "tools/launcher/guard.h"
#include "tools/launcher/memory_events.h"
#include "tools/launcher/placement.h"

namespace tutti::tool {

class LocalAgent : public Agent {
 public:
  // Creates the agent; `loop` and `sink` must outlive it.
  LocalAgent(EventLoop& loop, AgentSink& sink, HostJob job);
  // Kills the remaining ranks.
  ~LocalAgent() override;

  void listen() override;
  void start(const std::string& master_address, uint16_t master_port) override;
  void tell(const RankExit& exit) override;
  void signal_ranks(int number) override;
  bool finished() override;

 private:
  // A rank of this host. A process that has ended stays unreaped until the end of the job, so that
  // its process id is not reused. The id is also the id of the process group.
  struct Rank {
    int number = 0;
    pid_t pid = -1;
    Fd pidfd;
    Fd out;
    Fd err;
    Fd notices;  // this end of the socket TUTTI_LAUNCHER_FD
    bool ended = false;
    std::string why;  // reason why this agent killed it
  };

  int local_ranks() const { return static_cast<int>(job_.ranks.size()); }
  ChildSpec describe(int local_rank, const Placement& placement) const;
  void start_all();
  void start_rank(int local_rank, ChildSpec spec);
  void fail(const Error& error, int exit_code);
  void read_output(Rank& rank, Stream stream);
  void look_for_exits();
  void end_those_that_stand_still();
  void end_process_groups();

  EventLoop& loop_;
  AgentSink& sink_;
  HostJob job_;
  Guard guard_;
  OutOfMemoryWatch memory_;
  std::optional<Listener> listener_;
  std::string master_address_;
  uint16_t master_port_ = 0;
  std::vector<Rank> ranks_;
  int open_streams_ = 0;
  int running_ = 0;
  int ended_ = 0;  // number of ended ranks, on all hosts
  std::optional<Clock::time_point> still_since_;
  bool reaped_ = false;
  // deadline for remaining output; set when the last rank has ended
  Deadline drained_ = Deadline::never();
};

}  // namespace tutti::tool
