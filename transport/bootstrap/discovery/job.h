// The job of this process and its rank in it, from the launcher's variables.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "topology/domain.h"
#include "transport/bootstrap/discovery/rendezvous.h"

namespace tutti {

struct Job {
  int rank = 0;
  int size = 1;
  std::string master_address;  // empty with a rendezvous, or if size is 1
  uint16_t master_port = 0;
  // Number of consecutive ports, beginning with master_port, that rank 0 may use: it listens on the
  // first free one. The other ranks try all of them, and accept as rank 0 the process that proves
  // that it knows the job's key.
  int master_ports = 1;
  std::string rendezvous_file;  // empty: master_address is used
  // The caller's or the launcher's store, which replaces file and address; null: none.
  std::shared_ptr<Rendezvous> rendezvous;
  std::string token;  // empty: peers are not authenticated
  // true: TCP data connections are encrypted as well as the control channel.
  bool encrypts_data = false;
  std::string incarnation;  // ranks with different values never connect; not secret
  // Rank 0: a listening socket to use (Control closes it); otherwise -1. If the socket no longer
  // listens on master_port, it is ignored and the port is bound.
  int listen_fd = -1;
  // Pipe on which the launcher reports how ranks ended, else -1. Borrowed.
  int launcher_fd = -1;
  std::chrono::nanoseconds init_timeout = std::chrono::seconds(60);  // max(): no limit
  int fanout = 32;
  // Rank 0: maximum number of first connections that rank 0 holds in addition to its children's.
  // Further ranks must wait at their own listeners.
  int most_held = 256;
  int spares = 0;  // number of spares: the last ranks, which wait until they replace a dead one
  // If true, the process of a spare that is not needed exits, because its program has nothing to
  // do. If false, the spare's init() throws.
  bool unneeded_spares_exit = false;
  std::string wire_settings;  // must be equal on all ranks
  std::string note;           // opaque data distributed to all ranks (PeerInfo)
  std::string fabric;         // address on a fabric besides TCP, if any; distributed like the note
  Domain domain;              // location of this rank on its host, set by the launcher
  std::string rack;           // rack of this rank's host (Place::rack)
  std::optional<int> local_rank;  // index among the ranks of its host, if the launcher reports it
  std::optional<int> local_size;  // number of ranks on its host, if the launcher reports it
  std::string interface;          // network interface or address to listen on; empty: by route
  std::vector<std::string> more_interfaces;  // further interfaces, for data only
  // If true, rank 0 creates the token and publishes it through the rendezvous, which only the job's
  // ranks can read.
  bool token_by_rendezvous = false;
  std::string source;  // source of rank and size (job_sources.h); empty: the caller, or none
};

// Values that the caller supplies.
struct KnownJob {
  std::optional<int> rank;  // must be set if `size` is set
  std::optional<int> size;
  std::string master_address;
  std::optional<uint16_t> master_port;
  std::string rendezvous_file;
  std::shared_ptr<Rendezvous> rendezvous;  // the caller's store, which takes precedence
};

// Finds the job of this process. Values that `known` lacks are read from the launcher's variables
// (job_sources.h), the meeting place (MASTER_ADDR, MASTER_PORT, TUTTI_RENDEZVOUS, or the
// launcher's) and the settings. Without any of these the job has one rank. Throws Error(bootstrap)
// that names the missing or invalid variable.
Job job_from_environment(const KnownJob& known = {});

// Describes the meeting place of a job with several ranks for messages: "10.0.0.1:29500",
// "node1:29501-29508", "the launcher's PMIx".
std::string meeting_place(const Job& job);

// Returns TUTTI_TOKEN, or the content of the file named by TUTTI_TOKEN_FILE; empty if neither is
// set. Throws Error(bootstrap) if the file is unreadable, is empty, or has another mode than 0600,
// and for a token of fewer than 128 bits unless TUTTI_ALLOW_SHORT_TOKEN is set.
std::string job_token();
// Returns the content of a token file. Throws as job_token() does, but accepts a short token.
std::string token_in_file(const std::string& path);

}  // namespace tutti
