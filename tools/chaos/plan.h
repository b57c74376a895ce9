// Draws the faults of a trial and their times from a seed, or reads them from a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tutti::tool::chaos {

enum class Kind : uint8_t {
  kill,      // SIGKILL
  stop,      // SIGSTOP, permanently
  pause,     // SIGSTOP, and SIGCONT after a while
  stall,     // the rank blocks forever at a message
  truncate,  // a message arrives with half of its payload
  delay,     // the rank blocks for a while after a message
  full,      // the trial's directory is full once it has `bytes` bytes
  cut,       // a network link is down, for a while or permanently
  clock,     // the wall clock of the command and its descendants jumps, for a while or permanently
  drop,      // packets between two hosts are dropped, for a while or permanently
  lose,      // a host is lost: its packets are dropped silently, and its processes are killed
  abort,     // at a message, the rank aborts the communicator whose call sends the message
  swap,      // two words of a message over TCP are swapped
};

// Longest cut or partition, in ms, that a job must survive without an error, and longest cut that
// is drawn.
inline constexpr uint64_t kShortCutMs = 4000;

// Value of `rank` that means the command itself.
inline constexpr int kLauncher = -1;

struct Fault {
  Kind kind = Kind::kill;
  int rank = 0;
  uint64_t message = 0;  // index, from 1, of the message that the fault strikes; 0: use at_ms
  uint64_t at_ms = 0;    // time of the fault, after all ranks have started
  uint64_t for_ms = 0;   // length of a pause, delay, cut, drop or clock jump; 0: permanent
  uint64_t bytes = 0;    // size of the directory that becomes full
  std::string link;      // interface that is cut, as for DownLink
  std::vector<std::string> hosts = {};  // network namespaces: two for drop, one for lose
  int64_t shift_s = 0;                  // offset of a clock, in seconds

  bool operator==(const Fault&) const = default;
};

struct Plan {
  std::string fault_class;  // class under which the table counts the trial
  std::vector<Fault> faults;

  bool operator==(const Plan&) const = default;
};

bool has_fault(const Plan& plan, Kind kind);

// Returns true if ranks must continue as if the fault had not happened.
bool is_harmless(const Fault& fault);
// Returns true if some ranks can continue after the fault.
bool is_survivable(const Fault& fault);
// Returns true if an error must name the fault's rank.
bool has_victim(const Fault& fault);

// Returns a text: "kill of rank 1 at its message 90".
std::string in_words(const Fault& fault);
// Returns the fault as a value of TUTTI_FAULT; empty for faults that are injected differently.
std::string as_setting(const Fault& fault);

// Converts plans to {"trials": [{"class": C, "faults": [{"kind": K, "rank": R, "message": N},
// ...]}, ...]}.
Json to_json(const std::vector<Plan>& plans);
// Parses plans. Throws Error(invalid_argument) for other JSON.
std::vector<Plan> plans_from_json(const Json& json);

struct Draw {
  uint64_t seed = 1;
  int trials = 0;
  int first_rank = 0;
  int last_rank = 0;
  std::vector<std::string> classes;  // classes of faults, a subset of all_classes(), used in turn
  uint64_t from_ms = 0;              // there are no timed faults before this time
  uint64_t span_ms = 0;              // timed faults occur within this time after from_ms
  uint64_t messages = 0;  // message faults strike within a rank's first `messages` messages
  std::vector<std::string> links;  // interfaces that may be cut
  std::vector<std::string> hosts;  // hosts that may be separated or lost; the first is never lost
};

// Returns "kill", "two", ...; README.md explains the classes.
const std::vector<std::string>& all_classes();

// Returns true if faults of the class cut links, so that links must be given.
bool cuts_links(const std::string& fault_class);
// Returns true if faults of the class strike hosts, so that hosts must be given.
bool parts_hosts(const std::string& fault_class);
// Returns all hosts that a plan names.
std::vector<std::string> hosts_of(const Plan& plan);

// Draws plans. Equal arguments give equal plans on every machine.
std::vector<Plan> draw_plans(const Draw& draw);

}  // namespace tutti::tool::chaos
