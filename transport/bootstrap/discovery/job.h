// Who this process is in which job, learned from whatever started it.
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
  std::string master_address;  // empty with a rendezvous, or when size is 1
  uint16_t master_port = 0;
  // Rank 0 listens on the first that is free of so many ports, and the others look on all of them:
  // who proves the job's key is rank 0.
  int master_ports = 1;
  std::string rendezvous_file;             // empty: use the address
  std::shared_ptr<Rendezvous> rendezvous;  // the caller's own, instead of file and address
  std::string token;                       // empty: peers are not checked
  bool encrypts_data = false;              // what goes over TCP besides the control channel
  std::string incarnation;  // ranks that were given different ones never meet; no secret
  // Rank 0: a listening socket to adopt (Control closes it), else -1. One that is no listening
  // socket on master_port any more is passed over, and the port bound.
  int listen_fd = -1;
  // Pipe on which the launcher tells how ranks ended, else -1. Borrowed.
  int launcher_fd = -1;
  std::chrono::nanoseconds init_timeout = std::chrono::seconds(60);  // max(): for ever
  int fanout = 32;
  // Rank 0: first connections that it holds besides its children's. A rank beyond them is told to
  // wait at its own listener.
  int most_held = 256;
  int spares = 0;  // the last ranks, which wait until they are needed
  // A spare that was not needed has nothing to do, and its program no way to say so. Else its
  // init() throws.
  bool unneeded_spares_exit = false;
  std::string wire_settings;      // must be equal on all ranks
  std::string note;               // told to all ranks (PeerInfo), opaque here
  std::string fabric;             // its address on a fabric besides TCP, if any; as the note
  Domain domain;                  // where the launcher placed this rank on its host
  std::string rack;               // of its host: Place::rack
  std::optional<int> local_rank;  // among the ranks of its host, where the launcher tells
  std::optional<int> local_size;  // ranks on its host, where the launcher tells
  std::string interface;          // network interface or address to listen on; empty: by route
  std::vector<std::string> more_interfaces;  // to listen on for data, too
  // Rank 0 makes the token and tells it by the rendezvous, which none but the job's ranks can read.
  bool token_by_rendezvous = false;
  std::string source;  // what told who this is (job_sources.h); empty: the caller, or nobody
};

// What the caller knows of the job himself.
struct KnownJob {
  std::optional<int> rank;  // together with size
  std::optional<int> size;
  std::string master_address;
  std::optional<uint16_t> master_port;
  std::string rendezvous_file;
  std::shared_ptr<Rendezvous> rendezvous;  // a store of the caller's, before all other places
};

// Reads what the program's launcher told it (job_sources.h), where ranks meet (MASTER_ADDR,
// MASTER_PORT, TUTTI_RENDEZVOUS, or what the launcher offers), and the settings; only what is not
// known. Without any of these: a job of one rank. Throws Error(bootstrap) naming the variable that
// is missing or wrong.
Job job_from_environment(const KnownJob& known = {});

// Where the ranks of a job of several meet, for people: "10.0.0.1:29500", "node1:29501-29508", "the
// launcher's PMIx".
std::string meeting_place(const Job& job);

// TUTTI_TOKEN, or what is in the file that TUTTI_TOKEN_FILE names; empty where neither is set.
// Throws Error(bootstrap) when the file cannot be read, holds nothing, or can be read by others,
// and for a token of fewer than 128 bits unless TUTTI_ALLOW_SHORT_TOKEN is set.
std::string job_token();
// What a file holds that TUTTI_TOKEN_FILE names. Throws as job_token(), but for a short token.
std::string token_in_file(const std::string& path);

}  // namespace tutti
