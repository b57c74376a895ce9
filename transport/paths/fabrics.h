// The fabrics besides shared memory and TCP: chooses and opens the job's fabric, and lists those
// available on this machine.
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

// Parses the setting; `text` must be one of its choices.
Transports parse_transports(const std::string& text);

// The fabric that a process opened, and its name: "ucx", "ofi". An empty name means none.
struct OpenedFabric {
  std::string name;
  std::unique_ptr<fabric::Driver> driver;
};

// The fabrics that measured faster than TCP between these hosts, the fastest first; nullopt without
// measurements.
using MeasuredFabrics = std::optional<std::vector<PathClass>>;

// Opens the fabric that the job requests. A fabric requested by name must be available. For "auto",
// the candidates are tried in order: `measured` or, without measurements, fabric_candidates(). The
// first one that works is opened; if all fail, a warning is logged and the result is empty. The
// result is also empty for "tcp" and for a job of one rank, and for "auto" if all ranks are on one
// host or data is encrypted. Throws Error: unsupported, system.
OpenedFabric open_fabric(const std::string& fabric, const Job& job,
                         const MeasuredFabrics& measured);

// Returns the fabrics for which this host has a working network card, best first: InfiniBand and
// RoCE by UCX, else by libfabric; EFA and Slingshot by libfabric. Software emulation over Ethernet
// does not count: sockets are faster. `sys`: the system's directory.
std::vector<std::string> fabric_candidates(const std::string& sys = "/sys");

// A fabric for display.
struct Fabric {
  std::string name;                  // as in TUTTI_TRANSPORT
  std::string problem;               // why it cannot be used; empty: it can be used
  std::string version;               // version of its library
  std::vector<std::string> devices;  // as named by the library
};

// Returns the fabrics of this machine. Loads the libraries, which takes some 50 ms, and 300 ms more
// for libfabric.
std::vector<Fabric> probe_fabrics();

}  // namespace tutti
