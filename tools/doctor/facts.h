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
  std::vector<std::string> addresses;  // numeric addresses
  int mtu = 0;
  int64_t megabits = 0;  // speed that the driver reports, in megabits per second; 0: unknown
  bool up = false;
  bool loopback = false;
};

// One of the networks over which ranks would reach this host, with the port on which the doctor
// listens there.
struct Rail {
  std::string interface;
  std::string address;  // numeric address
  int mtu = 0;
  uint16_t tcp_port = 0;
  uint16_t udp_port = 0;
};

struct TokenFacts {
  // such as "TUTTI_TOKEN" or "TUTTI_TOKEN_FILE=/path"; empty: there is no token
  std::string source;
  std::string fingerprint;  // HMAC of the doctor's nonce with the token; never shown
  std::string problem;      // reason why the file cannot be used; empty: no problem
};

struct RendezvousFacts {
  std::string file;      // path of the file; empty: none is set
  std::string address;   // address of rank 0 of a job, as the file contains it
  bool answers = false;  // true if a process listens there
  std::string problem;   // reason why ranks could not meet there; empty: no problem
};

struct FabricFacts {
  std::string name;
  std::string problem;  // reason why the fabric cannot be used; empty: no problem
  std::string version;
  std::vector<std::string> devices;
};

struct HostFacts {
  std::string name;     // as the user wrote it, or the host's own name
  std::string problem;  // reason why the host did not answer; all other facts are then unknown
  int ranks = 1;        // number of ranks planned on this host

  std::string hostname;
  std::string version;
  uint32_t wire_version = 0;
  std::string build;  // SHA-256 of the program file
  std::string kernel;
  std::string processor;  // such as "x86_64"

  // Limits; kUnlimited if there is none.
  static constexpr uint64_t kUnlimited = UINT64_MAX;
  uint64_t memlock = kUnlimited;
  uint64_t open_files = kUnlimited;  // the hard limit, to which Tutti raises the soft limit
  int cores = 1;                     // number of processors that ranks may use
  int all_cores = 1;
  uint64_t memory = 0;                     // bytes of memory of the machine
  uint64_t memory_available = 0;           // bytes available; 0: unknown
  uint64_t container_memory = kUnlimited;  // bytes: smallest limit of the host's control groups
  uint64_t shm_size = 0;                   // bytes of /dev/shm; 0: missing
  uint64_t shm_free = 0;
  std::vector<std::string> rdma_devices;

  std::vector<Interface> interfaces;
  std::map<std::string, std::string> settings;  // settings that differ from their defaults
  std::vector<std::string> setting_problems;    // wrong values of settings
  std::vector<std::string> setting_warnings;  // settings without effect, for example misspelt names
  std::string tune_problem;  // reason why TUTTI_TUNE_FILE cannot be used; empty: no problem
  TokenFacts token;
  RendezvousFacts rendezvous;
  std::vector<FabricFacts> fabrics;

  double clock_offset = 0;  // seconds relative to the doctor's clock
  double clock_error = 0;   // error bound of the offset, in seconds

  std::vector<Rail> rails;
  std::string rail_problem;  // reason why the host cannot listen; empty: no problem
};

Json to_json(const HostFacts& facts);
HostFacts facts_from_json(const Json& json);
Json to_json(const Rail& rail);
Rail rail_from_json(const Json& json);

// The result of one attempt to connect from a host to another over one rail.
struct Reach {
  int from = 0;  // `from` and `to`: indices of the hosts
  int to = 0;
  int rail = 0;
  std::string address;    // address of the other host
  std::string own;        // source address that this host's routes select; empty: no route
  int route_error = 0;    // errno of finding a route
  int connect_error = 0;  // errno of connecting; ETIMEDOUT if there was no answer
  bool answered = false;  // true if the doctor there proved its identity
  bool bulk = false;      // true if the doctor there also received more than a few packets
  int packet = 0;         // bytes of the largest packet that this host's interface accepts
  int common_packet = 0;  // bytes of the largest packet that both ends accept
  // True if an unfragmented datagram of the given size was answered.
  bool small_arrived = false;   // a small datagram
  bool full_arrived = false;    // a packet of `packet` bytes
  bool common_arrived = false;  // a packet of `common_packet` bytes
};

Json to_json(const Reach& reach);
Reach reach_from_json(const Json& json);

// Latency and bandwidth of a pair of ranks in one direction.
struct Link {
  int from = 0;
  int to = 0;
  std::string from_host;
  std::string to_host;
  double latency_us = 0;
  double bandwidth_GBps = 0;
};

// The result of the test job.
struct JobResult {
  bool ran = false;     // true if the job completed
  std::string problem;  // last messages of a job that did not complete
  std::string transport;
  int cases = 0;                   // number of collectives whose results were compared
  std::vector<std::string> wrong;  // names of collectives whose results were wrong
  std::vector<Link> links;
};

Json to_json(const JobResult& result);
JobResult job_result_from_json(const Json& json);

}  // namespace tutti::tool
