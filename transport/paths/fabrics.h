// The fabrics besides shared memory and TCP: the choice of the job, the one that this process
// opens, and those available on this machine.
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

// The value of TUTTI_TRANSPORT.
struct Transports {
  bool near_by_shm = true;  // shared memory within a host
  bool only_shm = false;
  std::string fabric;  // path between hosts: "ucx", "ofi", "tcp", or "auto" for the best available
};

// `text` must be one of the setting's choices.
Transports parse_transports(const std::string& text);

// The fabric that a process opened, and its name: "ucx", "ofi". Empty: none.
struct OpenedFabric {
  std::string name;
  std::unique_ptr<fabric::Driver> driver;
};

// The fabrics that measured faster than TCP between these hosts, the fastest first; nullopt without
// measurements.
using MeasuredFabrics = std::optional<std::vector<PathClass>>;

// Opens the fabric that the job requests. A named one must be available; "auto" opens the first
// working one of `measured`, or else of fabric_candidates(), or none, with a warning if a candidate
// failed. Throws Error: unsupported, system.
OpenedFabric open_fabric(const std::string& fabric, const Job& job,
                         const MeasuredFabrics& measured);

// Returns the fabrics for which this host has a working network card, best first: InfiniBand and
// RoCE by UCX, else by libfabric; EFA and Slingshot by libfabric. Software emulation over Ethernet
// does not count: sockets are faster. `sys`: the system's directory.
std::vector<std::string> fabric_candidates(const std::string& sys = "/sys");

// A fabric for display.
struct Fabric {
  std::string name;                  // as in TUTTI_TRANSPORT
  std::string problem;               // empty: usable
  std::string version;               // version of its library
  std::vector<std::string> devices;  // as named by the library
};

// Loads the libraries, which takes some 50 ms, and 300 ms more for libfabric.
std::vector<Fabric> probe_fabrics();

}  // namespace tutti
