// The fabrics besides shared memory and TCP: which of them a job asks for, which this process opens
// for it, and what this machine has of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/bootstrap/discovery/job.h"
#include "transport/fabric/driver.h"
#include "transport/path_class.h"

namespace tutti {

// What TUTTI_TRANSPORT says.
struct Transports {
  bool near_by_shm = true;  // shared memory within a host
  bool only_shm = false;
  std::string fabric;  // of all else: "ucx", "ofi"; "tcp"; or "auto", the best that there is
};

// `text` is one of the setting's choices.
Transports parse_transports(const std::string& text);

// What a process opened, and how it is called: "ucx", "ofi". Empty: nothing.
struct OpenedFabric {
  std::string name;
  std::unique_ptr<fabric::Driver> driver;
};

// The fabrics that are quicker than TCP between these hosts, the quickest first. Nothing where none
// was measured.
using MeasuredFabrics = std::optional<std::vector<PathClass>>;

// For a job that asks for `fabric`. By name it must be there; "auto" opens the first that works of
// those that were measured, or else of fabric_candidates(), or nothing, with a warning where there
// was one to open. Throws Error: unsupported, system.
OpenedFabric open_fabric(const std::string& fabric, const Job& job,
                         const MeasuredFabrics& measured);

// The fabrics for which this host has a network card in working order, best first: those of
// InfiniBand and RoCE by UCX, else by libfabric; EFA and Slingshot by libfabric. One that is but
// software over Ethernet is none: sockets are quicker. `sys`: where the system's files are.
std::vector<std::string> fabric_candidates(const std::string& sys = "/sys");

// For people.
struct Fabric {
  std::string name;                  // as in TUTTI_TRANSPORT
  std::string problem;               // empty: usable
  std::string version;               // of its library
  std::vector<std::string> devices;  // as the library calls them
};

// Loads their libraries, which takes some 50 ms, and libfabric 300 ms more.
std::vector<Fabric> probe_fabrics();

}  // namespace tutti
