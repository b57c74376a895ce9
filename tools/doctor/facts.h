// What one host tells of itself before there is a job: plain values, which travel as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace tutti::tool {

struct Interface {
  std::string name;
  std::vector<std::string> addresses;  // numeric
  int mtu = 0;
  int64_t megabits = 0;  // per second, as its driver says; 0: not known
  bool up = false;
  bool loopback = false;
};

// One of the networks over which Tutti's ranks would reach this host, with the doctor's listeners.
struct Rail {
  std::string interface;
  std::string address;  // numeric
  int mtu = 0;
  uint16_t tcp_port = 0;
  uint16_t udp_port = 0;
};

struct TokenFacts {
  std::string source;       // "TUTTI_TOKEN", "TUTTI_TOKEN_FILE=/path"; empty: there is none
  std::string fingerprint;  // HMAC of the doctor's nonce; never shown
  std::string problem;      // why the file cannot be used
};

struct RendezvousFacts {
  std::string file;      // empty: none is set
  std::string address;   // what is in it already: rank 0 of some job
  bool answers = false;  // somebody listens there
  std::string problem;   // why ranks could not meet there
};

struct FabricFacts {
  std::string name;
  std::string problem;  // empty: usable
  std::string version;
  std::vector<std::string> devices;
};

struct HostFacts {
  std::string name;     // as the user wrote it, or the host's own
  std::string problem;  // why it told nothing; all else is then unknown
  int ranks = 1;        // that are to run there

  std::string hostname;
  std::string version;
  uint32_t wire_version = 0;
  std::string build;  // of the program: SHA-256 of the file
  std::string kernel;
  std::string processor;  // "x86_64"

  // Limits; kUnlimited where there is none.
  static constexpr uint64_t kUnlimited = UINT64_MAX;
  uint64_t memlock = kUnlimited;
  uint64_t open_files = kUnlimited;  // the hard limit, to which Tutti raises its own
  int cores = 1;                     // that ranks may use
  int all_cores = 1;
  uint64_t memory = 0;                     // of the machine
  uint64_t memory_available = 0;           // 0: not known
  uint64_t container_memory = kUnlimited;  // of its control group, the least from here up
  uint64_t shm_size = 0;                   // of /dev/shm; 0: there is none
  uint64_t shm_free = 0;
  std::vector<std::string> rdma_devices;

  std::vector<Interface> interfaces;
  std::map<std::string, std::string> settings;  // those that are not at their defaults
  std::vector<std::string> setting_problems;    // wrong values
  std::vector<std::string> setting_warnings;    // those without effect: misspelt names, ...
  std::string tune_problem;                     // why TUTTI_TUNE_FILE is of no use
  TokenFacts token;
  RendezvousFacts rendezvous;
  std::vector<FabricFacts> fabrics;

  double clock_offset = 0;  // seconds, against the clock of the doctor
  double clock_error = 0;   // it may be wrong by so much

  std::vector<Rail> rails;
  std::string rail_problem;  // why it cannot listen
};

Json to_json(const HostFacts& facts);
HostFacts facts_from_json(const Json& json);
Json to_json(const Rail& rail);
Rail rail_from_json(const Json& json);

// One way from a host to another, over one rail, as tried.
struct Reach {
  int from = 0;  // indices of hosts
  int to = 0;
  int rail = 0;
  std::string address;    // of the other
  std::string own;        // from which this host's routes would lead there; empty: no route
  int route_error = 0;    // errno of looking for a route
  int connect_error = 0;  // errno; ETIMEDOUT when nothing came
  bool answered = false;  // the doctor there proved to be the one
  bool bulk = false;      // and has got more than fits into a few packets
  int packet = 0;         // bytes of the largest packet that this host's interface takes
  int common_packet = 0;  // and that both ends take
  // Which datagrams that may not be cut were answered: a small one, and one of each of these sizes.
  bool small_arrived = false;
  bool full_arrived = false;
  bool common_arrived = false;
};

Json to_json(const Reach& reach);
Reach reach_from_json(const Json& json);

// What a pair of ranks can do, from one to the other.
struct Link {
  int from = 0;
  int to = 0;
  std::string from_host;
  std::string to_host;
  double latency_us = 0;
  double bandwidth_GBps = 0;
};

// What came of the job that the doctor started.
struct JobResult {
  bool ran = false;     // to its end
  std::string problem;  // else: its own last words
  std::string transport;
  int cases = 0;                   // collectives with known answers
  std::vector<std::string> wrong;  // which of them gave another
  std::vector<Link> links;
};

Json to_json(const JobResult& result);
JobResult job_result_from_json(const Json& json);

}  // namespace tutti::tool
