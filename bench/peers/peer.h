// The libraries that `tutti bench --peers` knows, as values: what starts them, what they have, what
// to install.
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
  std::vector<std::string> launchers;  // any of them starts its ranks; none: it does so itself
  std::string packages;                // that have it; empty: it is ours
  std::string library;                 // that its program loads, if any
  bool on_device = false;              // its buffers are GPUs'; else the hosts'
  std::vector<Collective> lacks;
  // Between the launcher and the program. `transport`: "shm" or "tcp".
  std::vector<std::string> (*launcher_options)(int ranks, const std::string& transport) = nullptr;

  bool is_library() const { return !packages.empty(); }
  bool has(Collective collective) const;
  bool is_installed() const;
  // What starts it. Throws Error(unsupported) that says what to install where it is not.
  std::vector<std::string> command(int ranks, const std::string& transport) const;
};

// The peer of that name with buffers in GPUs' memory, or in hosts'. Throws Error(unsupported) that
// lists the names where there is none.
const Peer& find_peer(const std::string& name, bool on_device);

// The names, each once, with "all" replaced by all that are installed. Throws Error(unsupported)
// where one is not known or not installed, or is for buffers elsewhere.
std::vector<std::string> choose_peers(const std::vector<std::string>& names, bool on_device);

}  // namespace tutti::bench
