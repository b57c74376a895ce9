// Starts `tutti doctor-host` on every host, and asks them: what they are, and whether they reach
// each other. A host that does not answer in time is a fact like others.
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

// The pipes to one host.
class HostLink {
 public:
  // An empty name: this host, without a remote shell.
  explicit HostLink(const std::string& host);
  ~HostLink();
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  void ask(const Json& question);
  // -1: it has ended.
  int fd() const { return from_.get(); }
  // Reads once. The answer to what was asked last, when it is there.
  std::optional<Json> read();
  // For good: nothing will come any more.
  void give_up(const std::string& why);
  bool alive() const { return static_cast<bool>(from_); }
  // Why it is not.
  const std::string& problem() const { return problem_; }

 private:
  std::string host_;
  pid_t pid_ = -1;
  Fd to_;
  Fd from_;
  LineReader lines_{-1};
  std::optional<Json> answer_;
  std::string said_;  // what was no answer: words of the remote shell, errors
  std::string problem_;
};

struct GatherOptions {
  std::vector<std::string> hosts;  // empty: this one
  std::vector<int> ranks;          // of each host; of this one
  std::chrono::milliseconds patience;
  uint16_t port = 0;  // of rank 0, where that is given
};

class Hosts {
 public:
  explicit Hosts(const GatherOptions& options);

  // All that they say without each other's help, clocks included.
  const std::vector<HostFacts>& look();
  // Every ordered pair of those that answer. Fills in the rails of the facts.
  std::vector<Reach> reach();

  const std::vector<HostFacts>& facts() const { return facts_; }
  const std::string& nonce() const { return nonce_; }

 private:
  // Asks all that are alive and for which `question` gives one; `take` gets their answers.
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
