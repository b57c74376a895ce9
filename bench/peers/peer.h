// The libraries that `tutti bench --peers` supports, as values: launcher, collectives and packages.
#pragma once

#include <string>
#include <vector>

#include "collectives/program/program.h"

namespace tutti::bench {

struct Peer {
  std::string name;     // on the command line
  std::string program;  // NAME_peer; empty: `name` is its NAME
  std::string title;
  bool is_mpi = false;
  std::vector<std::string> launchers;  // any of them starts its ranks; empty: it starts them itself
  std::string packages;                // Debian packages; empty: part of Tutti
  std::string library;                 // that its program loads, if any
  bool on_device = false;              // its buffers are GPUs'; else the hosts'
  std::vector<Collective> lacks;
  // Options between the launcher and the program. `transport`: "shm" or "tcp".
  std::vector<std::string> (*launcher_options)(int ranks, const std::string& transport) = nullptr;

  bool is_library() const { return !packages.empty(); }
  bool has(Collective collective) const;
  bool is_installed() const;
  // Returns the command that starts the peer. Throws Error(unsupported) that names the packages to
  // install if it is missing.
  std::vector<std::string> command(int ranks, const std::string& transport) const;
};

// Returns the peer of that name with buffers in GPU or host memory. Throws Error(unsupported) that
// lists the known names if there is none.
const Peer& find_peer(const std::string& name, bool on_device);

// Returns the names, each once, with "all" replaced by all installed peers. Throws
// Error(unsupported) if a peer is unknown, not installed, or for buffers in other memory.
std::vector<std::string> choose_peers(const std::vector<std::string>& names, bool on_device);

}  // namespace tutti::bench
