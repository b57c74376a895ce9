// Starts `tutti doctor-host` on every host, asks it for its facts, and tests whether hosts reach
// each other. If a host does not answer in time, its facts contain the reason.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/json.h"
#include "tools/doctor/facts.h"
#include "tools/launcher/protocol.h"

namespace tutti::tool {

// Connects to the doctor's process on one host through pipes.
class HostLink {
 public:
  // Starts the process. An empty `host` means this host, without a remote shell.
  explicit HostLink(const std::string& host);
  ~HostLink();
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  void ask(const Json& question);
  // Returns the descriptor from which answers are read, or -1 if the process has ended.
  int fd() const { return from_.get(); }
  // Reads once. Returns the answer to the last question if it is complete.
  std::optional<Json> read();
  // Stops waiting for this host permanently.
  void give_up(const std::string& why);
  bool alive() const { return static_cast<bool>(from_); }
  // Returns the reason why the host is not alive.
  const std::string& problem() const { return problem_; }

 private:
  std::string host_;
  pid_t pid_ = -1;
  Fd to_;
  Fd from_;
  LineReader lines_{-1};
  std::optional<Json> answer_;
  std::string said_;  // output that is not an answer: messages of the remote shell, errors
  std::string problem_;
};

struct GatherOptions {
  std::vector<std::string> hosts;  // empty: this host
  std::vector<int> ranks;          // number of ranks of each host, or of this host
  std::chrono::milliseconds patience;
  uint16_t port = 0;  // port of rank 0, if given
};

class Hosts {
 public:
  explicit Hosts(const GatherOptions& options);

  // Gathers the facts of each host, including its clock's offset.
  const std::vector<HostFacts>& look();
  // Makes the hosts listen, adds their rails to the facts, and tests every ordered pair of the
  // hosts that answer.
  std::vector<Reach> reach();

  const std::vector<HostFacts>& facts() const { return facts_; }
  const std::string& nonce() const { return nonce_; }

 private:
  // Asks every living host for which `question` returns a question, and passes each answer to
  // `take`. Gives up hosts that have not answered after `patience`.
  void ask_all(const std::function<std::optional<Json>(size_t host)>& question,
               const std::function<void(size_t host, const Json& answer)>& take,
               std::chrono::milliseconds patience);
  void compare_clocks(size_t host);
  void listen();

  const GatherOptions options_;
  const std::string nonce_;
  std::vector<std::unique_ptr<HostLink>> links_;
  std::vector<HostFacts> facts_;
};

}  // namespace tutti::tool
