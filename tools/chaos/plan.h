// What goes wrong in a trial, and when: drawn from a seed, or read from a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tutti::tool::chaos {

enum class Kind : uint8_t {
  kill,      // SIGKILL
  stop,      // SIGSTOP, for good
  pause,     // SIGSTOP, and after a while SIGCONT
  stall,     // at a message: never moves again, but lives
  truncate,  // a message arrives with half of its payload
  delay,     // stands still for a while after a message
  full,      // the trial's directory takes so many bytes and no more
  cut,       // a network link is down, for a while or for good
  clock,     // the wall clock of the command and all that it starts jumps, for a while or for good
  drop,      // nothing arrives from one host at another, for a while or for good
  lose,      // a host is lost in silence: nothing arrives from it, and its processes are gone
  abort,     // at a message: the rank aborts the communicator that sends it
  swap,      // two words of a message over TCP change places on the way
};

// An outage of the network that is no longer than this is no reason for anybody to give up.
inline constexpr uint64_t kShortCutMs = 4000;

// In the place of a rank: the command itself.
inline constexpr int kLauncher = -1;

struct Fault {
  Kind kind = Kind::kill;
  int rank = 0;
  uint64_t message = 0;  // strikes when the rank sends its n-th one; 0: by time
  uint64_t at_ms = 0;    // since all ranks have been there
  uint64_t for_ms = 0;   // of a pause, a delay, a cut, a drop or a clock; 0: for good
  uint64_t bytes = 0;    // of a directory that is full
  std::string link;      // that is cut, as DownLink has it
  std::vector<std::string> hosts = {};  // two for drop, one for lose: network namespaces
  int64_t shift_s = 0;                  // of a clock, in seconds

  bool operator==(const Fault&) const = default;
};

struct Plan {
  std::string fault_class;  // by which trials are counted, for people
  std::vector<Fault> faults;

  bool operator==(const Plan&) const = default;
};

bool has_fault(const Plan& plan, Kind kind);

// Whoever meets it goes on as if nothing had been.
bool is_harmless(const Fault& fault);
// Those that are left can go on without whom it strikes.
bool is_survivable(const Fault& fault);
// The rank that must be named to people; others are no rank's fault.
bool has_victim(const Fault& fault);

// "kill of rank 1 at its message 90"
std::string in_words(const Fault& fault);
// As TUTTI_FAULT has it; empty for what is done otherwise.
std::string as_setting(const Fault& fault);

// {"trials": [{"class": C, "faults": [{"kind": K, "rank": R, "message": N}, ...]}, ...]}
Json to_json(const std::vector<Plan>& plans);
// Throws Error(invalid_argument).
std::vector<Plan> plans_from_json(const Json& json);

struct Draw {
  uint64_t seed = 1;
  int trials = 0;
  int first_rank = 0;
  int last_rank = 0;
  std::vector<std::string> classes;  // of all_classes(): each in turn
  uint64_t from_ms = 0;              // before it there are no faults by time
  uint64_t span_ms = 0;              // after it there are
  uint64_t messages = 0;             // faults at messages are at the first so many
  std::vector<std::string> links;    // that may be cut
  std::vector<std::string> hosts;    // that may be kept apart or lost; the first is never lost
};

// "kill", "two", ...; what they mean is said in README.md.
const std::vector<std::string>& all_classes();

// Of a class; then there must be links.
bool cuts_links(const std::string& fault_class);
// True for a class whose faults strike hosts, so that some must be given.
bool parts_hosts(const std::string& fault_class);
// All hosts that a plan names.
std::vector<std::string> hosts_of(const Plan& plan);

// The same for the same draw, everywhere.
std::vector<Plan> draw_plans(const Draw& draw);

}  // namespace tutti::tool::chaos
