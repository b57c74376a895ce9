// Opened hwloc topologies: this host, a file, or a description. Only the readers that convert them
// to values (host.h, hwloc_graph.h) include <hwloc.h>.
#pragma once

#include <hwloc.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

// Selects whether I/O devices (PCI, GPUs, NICs) are discovered. `skip` saves the time of bus
// probing, during which hwloc plugins may initialise device drivers.
enum class Devices { skip, include };

// Opens a topology. It includes processors that this process may not use. If HWLOC_XMLFILE names a
// file, open_this_host() reads that file. Throws Error(system) if hwloc cannot read the host, and
// Error(invalid_argument) for a bad file or description; for malformed XML the error names the
// line.
HwlocTopology open_this_host(Devices devices);
// Opens an XML text. `file`: its name in messages. A build with hwloc 2 also reads files that hwloc
// 3 wrote.
HwlocTopology open_hwloc_xml(std::string_view xml, const std::string& file, Devices devices);
HwlocTopology open_synthetic_host(const std::string& description);

struct BitmapDeleter {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapDeleter>;

// Returns the processors allowed by cgroups (as hwloc reports) and, on the real host, by this
// process's affinity.
Bitmap allowed_set(const HwlocTopology& topology);

// Returns all objects of a type, in logical order.
std::vector<hwloc_obj_t> objects(const HwlocTopology& topology, hwloc_obj_type_t type);

}  // namespace tutti
