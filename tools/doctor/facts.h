// Facts that one host reports about itself before a job starts: plain values, sent as JSON.
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
  int64_t megabits = 0;  // megabits per second from the driver; 0: unknown
  bool up = false;
  bool loopback = false;
};

// One of the networks over which ranks would reach this host, with the doctor's listeners.
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
  std::string address;   // address that the file contains: rank 0 of some job
  bool answers = false;  // a process listens there
  std::string problem;   // why ranks could not meet there
};

struct FabricFacts {
  std::string name;
  std::string problem;  // empty: usable
  std::string version;
  std::vector<std::string> devices;
};

struct HostFacts {
  std::string name;     // as the user wrote it, or the host's own name
  std::string problem;  // why the host did not answer; all else is then unknown
  int ranks = 1;        // ranks planned on this host

  std::string hostname;
  std::string version;
  uint32_t wire_version = 0;
  std::string build;  // SHA-256 of the program file
  std::string kernel;
  std::string processor;  // "x86_64"

  // Limits; kUnlimited if there is none.
  static constexpr uint64_t kUnlimited = UINT64_MAX;
  uint64_t memlock = kUnlimited;
  uint64_t open_files = kUnlimited;  // the hard limit, to which Tutti raises its own
  int cores = 1;                     // that ranks may use
  int all_cores = 1;
  uint64_t memory = 0;                     // memory of the machine
  uint64_t memory_available = 0;           // 0: not known
  uint64_t container_memory = kUnlimited;  // smallest limit of its control groups
  uint64_t shm_size = 0;                   // size of /dev/shm; 0: missing
  uint64_t shm_free = 0;
  std::vector<std::string> rdma_devices;

  std::vector<Interface> interfaces;
  std::map<std::string, std::string> settings;  // those that are not at their defaults
  std::vector<std::string> setting_problems;    // wrong values
  std::vector<std::string> setting_warnings;    // those without effect: misspelt names, ...
  std::string tune_problem;                     // why TUTTI_TUNE_FILE cannot be used
  TokenFacts token;
  RendezvousFacts rendezvous;
  std::vector<FabricFacts> fabrics;

  double clock_offset = 0;  // seconds relative to the doctor's clock
  double clock_error = 0;   // error bound of the offset, in seconds

  std::vector<Rail> rails;
  std::string rail_problem;  // why it cannot listen
};

Json to_json(const HostFacts& facts);
HostFacts facts_from_json(const Json& json);
Json to_json(const Rail& rail);
Rail rail_from_json(const Json& json);

// The result of one connection attempt from a host to another over one rail.
struct Reach {
  int from = 0;  // indices of hosts
  int to = 0;
  int rail = 0;
  std::string address;    // address of the other host
  std::string own;        // source address by this host's routes; empty: no route
  int route_error = 0;    // errno of looking for a route
  int connect_error = 0;  // errno; ETIMEDOUT when nothing came
  bool answered = false;  // the doctor there proved its identity
  bool bulk = false;      // it also received more than fits into a few packets
  int packet = 0;         // bytes of the largest packet that this host's interface takes
  int common_packet = 0;  // and that both ends accept
  // Unfragmented datagrams that were answered: a small one, and one of each of these sizes.
  bool small_arrived = false;
  bool full_arrived = false;
  bool common_arrived = false;
};

Json to_json(const Reach& reach);
Reach reach_from_json(const Json& json);

// Performance of a pair of ranks in one direction.
struct Link {
  int from = 0;
  int to = 0;
  std::string from_host;
  std::string to_host;
  double latency_us = 0;
  double bandwidth_GBps = 0;
};

// Result of the test job.
struct JobResult {
  bool ran = false;     // the job completed
  std::string problem;  // otherwise its last messages
  std::string transport;
  int cases = 0;                   // collectives with known answers
  std::vector<std::string> wrong;  // the cases with another result
  std::vector<Link> links;
};

Json to_json(const JobResult& result);
JobResult job_result_from_json(const Json& json);

}  // namespace tutti::tool
