// hwloc's topologies, opened: this host, a file, or a description. The only users of <hwloc.h> are
// the readers that make values of it (host.h, hwloc_graph.h).
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

// Finding what is on the buses takes time, and plugins of hwloc may wake drivers for it.
enum class Devices { leave_out, take };

// With what is not allowed for this process. Where HWLOC_XMLFILE names a file, that one is read.
// Throw Error(system) when hwloc cannot read it, Error(invalid_argument) for a bad file or
// description; of files that are no XML the error names the line.
HwlocTopology open_this_host(Devices devices);
// `file` is its name, for messages. Also files of hwloc 3, where this is hwloc 2.
HwlocTopology open_hwloc_xml(std::string_view xml, const std::string& file, Devices devices);
HwlocTopology open_synthetic_host(const std::string& description);

struct BitmapDeleter {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapDeleter>;

// The processors that cgroups (which hwloc asks) and, on the real host, this process's affinity
// leave.
Bitmap allowed_set(const HwlocTopology& topology);

// All objects of a type, in logical order.
std::vector<hwloc_obj_t> objects(const HwlocTopology& topology, hwloc_obj_type_t type);

}  // namespace tutti
