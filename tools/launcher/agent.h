// The launcher's interface to the ranks of one or several hosts: of this host (LocalAgent); of
// another host and the hosts below it, through a remote shell (RemoteAgent); or of several hosts
// (Agents).
//
// Order of calls: first listen() on the agent of rank 0, then start() on every agent with the
// address that on_listening() reports. Events are reported to the sink from within
// EventLoop::run_once() or from within the calls themselves.
#pragma once

#include <array>
#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::tool {

// Environment variables that describe a host; all others are the same on all hosts of a job.
inline constexpr std::array<std::string_view, 2> kOfOneHost = {"TUTTI_HOST", "TUTTI_RACK"};

// The part of a job that one host runs.
struct HostJob {
  std::string host;        // the host as the user wrote it; empty: this host only, over loopback
  std::string display;     // the host's name in messages
  std::vector<int> ranks;  // ranks of this host, ascending
  int world_size = 1;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  // added to the agent's own environment
  std::string directory;  // working directory of the ranks; empty: the agent's own
  // True: ranks inherit this process's standard output, so that they can detect a terminal.
  bool share_stdout = false;
  bool share_stdin = false;  // true: rank 0 reads this process's standard input
  // Jobs of the hosts whose agents this host's agent starts. The tree of jobs keeps a single
  // process from having to start all agents.
  std::vector<HostJob> below;
};

struct RankExit {
  int rank = 0;
  int64_t pid = 0;
  int signal = 0;  // signal that ended the rank; 0: it exited with `code`
  int code = 0;
  std::string why;  // cause of the signal, if it is known; usually empty

  bool failed() const { return signal != 0 || code != 0; }
  // Returns the exit code as in a shell: 128 + N for signal N.
  int exit_code() const { return signal != 0 ? 128 + signal : code; }
  // Returns true if the rank ended by itself, as after an error of its own or of another rank.
  bool by_itself() const { return signal == 0 || signal == SIGABRT; }
};

enum class Stream { out = 1, err = 2 };

class AgentSink {
 public:
  virtual ~AgentSink() = default;
  virtual void on_listening(const std::string& address, uint16_t port) = 0;
  // A rank has written `bytes`. `end`: the stream has ended; `bytes` may then be empty.
  virtual void on_output(int rank, Stream stream, std::string_view bytes, bool end) = 0;
  // A rank has ended. If several ended since the last poll, those killed by a signal are reported
  // first, because they are the more likely cause.
  virtual void on_exit(const RankExit& exit) = 0;
  // The agent failed (program not found, host lost). `text`: message; `code`: exit code of the
  // launcher. The agent ends its running ranks; `lost` are the ranks whose end it cannot report.
  virtual void on_failure(const std::string& text, int code, const std::vector<int>& lost) = 0;
};

class Agent {
 public:
  virtual ~Agent() = default;
  // Opens the socket on which rank 0 will listen.
  virtual void listen() = 0;
  virtual void start(const std::string& master_address, uint16_t master_port) = 0;
  // Notifies the agent's ranks that another rank has ended.
  virtual void tell(const RankExit& exit) = 0;
  // Sends a signal to the process groups of all ranks.
  virtual void signal_ranks(int number) = 0;
  // Returns true if all processes of ranks have ended and nothing more will be reported.
  virtual bool finished() = 0;
  // Must be called periodically. Reports slow operations and gives up those that exceed their time
  // limit.
  virtual void look_at_clock() {}
  // Starts to shut down, so that several agents shut down concurrently; the destructor waits for
  // the end.
  virtual void let_go() {}
};

}  // namespace tutti::tool
