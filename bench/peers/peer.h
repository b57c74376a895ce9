// The libraries that `tutti bench --peers` supports, described as values: launcher, collectives and
// packages.
#pragma once

#include <string>
#include <vector>

#include "collectives/program/program.h"

namespace tutti::bench {

struct Peer {
  std::string name;     // name on the command line
  std::string program;  // name of the peer's program without "_peer"; empty: the same as `name`
  std::string title;
  bool is_mpi = false;
  // launchers, any of which can start the peer's ranks; empty: the program itself starts them
  std::vector<std::string> launchers;
  std::string packages;    // Debian packages that contain the peer; empty: it is part of Tutti
  std::string library;     // shared library that its program loads, if any
  bool on_device = false;  // true: its buffers are in GPU memory; false: in the hosts' memory
  std::vector<Collective> lacks;
  // Returns options that are put between the launcher and the program. `transport`: "shm" or "tcp".
  std::vector<std::string> (*launcher_options)(int ranks, const std::string& transport) = nullptr;

  bool is_library() const { return !packages.empty(); }
  bool has(Collective collective) const;
  bool is_installed() const;
  // Returns the command that starts the peer. If the peer is missing, throws Error(unsupported)
  // that names the packages to install.
  std::vector<std::string> command(int ranks, const std::string& transport) const;
};

// Returns the peer of that name with buffers in GPU or host memory. If there is none, throws
// Error(unsupported) that lists the known names.
const Peer& find_peer(const std::string& name, bool on_device);

// Returns the names without duplicates, with "all" replaced by all installed peers. Throws
// Error(unsupported) if a peer is unknown, not installed, or has buffers in the other kind of
// memory.
std::vector<std::string> choose_peers(const std::vector<std::string>& names, bool on_device);

}  // namespace tutti::bench
