// The ranks of one host, seen from the launcher: the same contract for this host (LocalAgent), for
// another one reached through a remote shell, with those behind it (RemoteAgent), and for several
// (Agents).
//
// Order of calls: listen() on the agent of rank 0, then start() on every agent with the address
// that on_listening() brought. Everything is reported to the sink from within EventLoop::run_once()
// or from within the calls themselves.
#pragma once

#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::tool {

// What one host is asked to run.
struct HostJob {
  std::string host;     // as the user wrote it; empty: this host alone, over the loopback address
  std::string display;  // the host's name in messages
  std::vector<int> ranks;  // of this host, ascending
  int world_size = 1;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  // set on top of what the agent itself has
  std::string directory;                           // to work in; empty: the agent's own
  // Ranks write to this process's standard output themselves, and so see that it is a terminal.
  bool share_stdout = false;
  bool share_stdin = false;  // rank 0 reads this process's standard input
  // Of other hosts, whose agents this host's agent starts: so no process starts them all.
  std::vector<HostJob> below;
};

struct RankExit {
  int rank = 0;
  int64_t pid = 0;
  int signal = 0;  // 0: it ended by itself, with `code`
  int code = 0;
  std::string why;  // what its host knows beyond the signal's number; mostly empty

  bool failed() const { return signal != 0 || code != 0; }
  // What a shell would say: 128 + N for signal N.
  int exit_code() const { return signal != 0 ? 128 + signal : code; }
  // It ended its own life, as after an error: of its own, or because of another rank's.
  bool by_itself() const { return signal == 0 || signal == SIGABRT; }
};

enum class Stream { out = 1, err = 2 };

class AgentSink {
 public:
  virtual ~AgentSink() = default;
  virtual void on_listening(const std::string& address, uint16_t port) = 0;
  // Bytes as they came; `end` with the last ones (which may be none) of that stream.
  virtual void on_output(int rank, Stream stream, std::string_view bytes, bool end) = 0;
  // A rank ended. When several did so since the last look, those killed by a signal come first:
  // they are the likelier cause of the others.
  virtual void on_exit(const RankExit& exit) = 0;
  // The agent cannot do its work (program not found, host lost): `text` for people, `code` is what
  // the launcher shall return. Ranks that were running are ended by the agent; `lost` are those
  // that it cannot tell of any more.
  virtual void on_failure(const std::string& text, int code, const std::vector<int>& lost) = 0;
};

class Agent {
 public:
  virtual ~Agent() = default;
  // Opens the socket that rank 0 will listen on.
  virtual void listen() = 0;
  virtual void start(const std::string& master_address, uint16_t master_port) = 0;
  // A rank of another host has ended: told to this host's ranks.
  virtual void tell(const RankExit& exit) = 0;
  // Sends a signal to the process groups of all ranks.
  virtual void signal_ranks(int number) = 0;
  // Nothing will be reported any more and no process of a rank is left.
  virtual bool finished() = 0;
  // To be called now and then: says what takes long, and gives up what takes too long.
  virtual void look_at_clock() {}
  // Begins to end, so that many can end at a time: the destructor waits.
  virtual void let_go() {}
};

}  // namespace tutti::tool
