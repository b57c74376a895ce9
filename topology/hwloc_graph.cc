#include "topology/hwloc_graph.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "topology/hwloc_topology.h"
#include "topology/link_speeds.h"
#include "topology/nvml.h"

namespace tutti {
namespace {

// Fraction of the nominal bandwidth reported by hwloc that can be achieved.
constexpr double kOfPci = 12 / 15.75;
constexpr double kOfNvlink = 0.88;  // 22 of 25 and 18 of 20 GB/s
constexpr double kOfXgmi = 0.75;    // 48 of 64 GB/s
constexpr double kCoreGBps = 12;    // bandwidth of a core to the memory of its NUMA node
// Bandwidth between NUMA nodes of one package, as a multiple of the bandwidth between packages.
constexpr double kInsidePackage = 2;

Processor processor_of(hwloc_obj_t root, hwloc_obj_t package) {
  const auto info = [&](const char* name) -> std::string {
    for (hwloc_obj_t object : {package, root}) {
      const char* text = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, name);
      if (text != nullptr) return text;
    }
    return "";
  };
  const std::string arch = info("Architecture");
  const bool is_power = arch.starts_with("ppc64") || info("CPUModel").starts_with("POWER");
  return {.arch = is_power            ? "ppc64"
                  : arch == "aarch64" ? "arm64"
                                      : "x86_64",
          .vendor = info("CPUVendor"),
          .family = std::atoi(info("CPUFamilyNumber").c_str()),
          .model = std::atoi(info("CPUModelNumber").c_str())};
}

std::string first_word(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

// Reads the speed of a card's port from sysfs; 0 if unknown.
double port_GBps(const std::string& name) {
  const std::filesystem::path sys = "/sys/class";
  double megabits = 0;
  const std::string rate = first_word(sys / "infiniband" / name / "ports/1/rate");  // "100 Gb/sec"
  const std::string speed = first_word(sys / "net" / name / "speed");
  if (!rate.empty()) {
    megabits = 1000 * std::atof(rate.c_str());
  } else if (!speed.empty()) {
    megabits = std::atof(speed.c_str());
  }
  return megabits > 0 ? megabits / 8000 : 0;
}

class Builder {
 public:
  Builder(const HwlocTopology& topology, bool is_this_host, Cores cores = Cores::all)
      : topology_(topology), is_this_host_(is_this_host) {
    if (cores == Cores::allowed) allowed_ = allowed_set(topology);
  }

  Graph build() {
    add_places();
    add_cores();
    add_devices();
    add_fast_links();
    return std::move(graph_);
  }

 private:
  struct Place {
    int node = 0;
    hwloc_obj_t object = nullptr;
  };

  void connect(int a, int b, LinkClass kind, double GBps) {
    graph_.connect({a, b, kind, GBps, usual_latency_us(kind)});
  }

  // ---- NUMA nodes and packages

  // Returns the objects that cores and devices are linked to: the NUMA nodes or, if there are more
  // packages than NUMA nodes, the packages. Of several NUMA nodes with the same cores, which have
  // memory of different kinds, the first is used.
  std::vector<hwloc_obj_t> place_objects() const {
    std::vector<hwloc_obj_t> numa;
    for (hwloc_obj_t node : objects(topology_, HWLOC_OBJ_NUMANODE)) {
      const bool has_cores = !hwloc_bitmap_iszero(node->cpuset);
      const bool is_new = std::ranges::none_of(numa, [&](hwloc_obj_t other) {
        return hwloc_bitmap_intersects(other->cpuset, node->cpuset);
      });
      if (has_cores && is_new) numa.push_back(node);
    }
    std::vector<hwloc_obj_t> packages = objects(topology_, HWLOC_OBJ_PACKAGE);
    if (numa.empty() || packages.size() > numa.size()) numa = std::move(packages);
    if (numa.empty()) numa.push_back(hwloc_get_root_obj(topology_.get()));
    return numa;
  }

  hwloc_obj_t package_above(hwloc_obj_t object) const {
    return hwloc_get_next_obj_covering_cpuset_by_type(topology_.get(), object->cpuset,
                                                      HWLOC_OBJ_PACKAGE, nullptr);
  }

  void add_places() {
    std::map<hwloc_obj_t, std::vector<int>> inside;  // by package: places inside it
    std::vector<hwloc_obj_t> packages;               // packages in order
    for (hwloc_obj_t object : place_objects()) {
      const int number = static_cast<int>(
          object->type == HWLOC_OBJ_NUMANODE ? object->os_index : object->logical_index);
      const bool is_package = object->type == HWLOC_OBJ_PACKAGE;
      const int node = graph_.add({.kind = is_package ? NodeKind::package : NodeKind::numa_node,
                                   .number = number,
                                   .name = cat(is_package ? "package" : "numa_node", number)});
      places_.push_back({node, object});
      hwloc_obj_t package = package_above(object);
      if (!inside.contains(package)) packages.push_back(package);
      inside[package].push_back(node);
    }
    const hwloc_obj_t root = hwloc_get_root_obj(topology_.get());
    std::vector<std::pair<int, double>> ends;  // node, and its bandwidth to other packages
    for (hwloc_obj_t package : packages) {
      const double GBps = between_packages_GBps(processor_of(root, package));
      const std::vector<int>& nodes = inside[package];
      int end = nodes.front();
      if (nodes.size() > 1) {
        const int number = static_cast<int>(ends.size());
        end = graph_.add(
            {.kind = NodeKind::package, .number = number, .name = cat("package", number)});
        for (const int node : nodes) connect(node, end, LinkClass::system, kInsidePackage * GBps);
      }
      for (const auto& [other, other_GBps] : ends) {
        connect(other, end, LinkClass::system, std::min(GBps, other_GBps));
      }
      ends.emplace_back(end, GBps);
    }
  }

  int place_of(hwloc_obj_t object) const {
    hwloc_obj_t above = hwloc_get_non_io_ancestor_obj(topology_.get(), object);
    for (const Place& place : places_) {
      if (hwloc_bitmap_intersects(place.object->cpuset, above->cpuset)) return place.node;
    }
    return places_.front().node;
  }

  void add_cores() {
    std::vector<hwloc_obj_t> cores = objects(topology_, HWLOC_OBJ_CORE);
    if (cores.empty()) cores = objects(topology_, HWLOC_OBJ_PU);
    std::erase_if(cores, [this](hwloc_obj_t core) {
      return allowed_ && !hwloc_bitmap_intersects(core->cpuset, allowed_.get());
    });
    for (hwloc_obj_t core : cores) {
      const int number = static_cast<int>(core->logical_index);
      const int node =
          graph_.add({.kind = NodeKind::core, .number = number, .name = cat("core", number)});
      connect(node, place_of(core), LinkClass::memory, kCoreGBps);
    }
  }

  // ---- PCI

  void add_devices() {
    for (hwloc_obj_t bridge : objects(topology_, HWLOC_OBJ_BRIDGE)) {
      if (bridge->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) {
        add_below(bridge, place_of(bridge));
      }
    }
    // Adds the devices that hwloc reports outside all buses.
    for (hwloc_obj_t device : objects(topology_, HWLOC_OBJ_PCI_DEVICE)) {
      if (!by_object_.contains(device) && device->parent->type != HWLOC_OBJ_BRIDGE) {
        add_device(device, place_of(device));
      }
    }
  }

  static int children_of(hwloc_obj_t bridge) {
    int count = 0;
    for (hwloc_obj_t child = bridge->io_first_child; child != nullptr;
         child = child->next_sibling) {
      ++count;
    }
    return count;
  }

  // Adds everything below a bridge; `above` is the node of the bridge. A bridge with fewer than two
  // children is a port, not a switch, and gets no node of its own.
  void add_below(hwloc_obj_t bridge, int above) {
    for (hwloc_obj_t child = bridge->io_first_child; child != nullptr;
         child = child->next_sibling) {
      if (child->type == HWLOC_OBJ_PCI_DEVICE) {
        add_device(child, above);
      } else if (child->type == HWLOC_OBJ_BRIDGE) {
        if (children_of(child) < 2) {
          add_below(child, above);
          continue;
        }
        const auto& pci = child->attr->bridge.upstream.pci;
        const int node =
            graph_.add({.kind = NodeKind::pci_switch, .name = cat("pci_switch ", address(pci))});
        connect(above, node, LinkClass::pci, GBps_of(pci.linkspeed));
        add_below(child, node);
      }
    }
  }

  template <typename Pci>
  static std::string address(const Pci& pci) {
    char text[32];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", pci.domain, pci.bus, pci.dev, pci.func);
    return text;
  }
  // Returns true if the reported link speed is usable. Idle devices lower their link speed: a speed
  // below one PCIe 3 lane counts as unknown.
  static bool has_speed(double linkspeed) { return linkspeed > 1; }
  static double GBps_of(double linkspeed) {
    return has_speed(linkspeed) ? linkspeed * kOfPci : kUnknownPciGBps;
  }

  void add_device(hwloc_obj_t device, int above) {
    const auto& pci = device->attr->pcidev;
    const unsigned kind = pci.class_id >> 8;
    bool computes = false;
    std::string port;
    for (hwloc_obj_t os = device->io_first_child; os != nullptr; os = os->next_sibling) {
      if (os->type != HWLOC_OBJ_OS_DEVICE || os->name == nullptr) continue;
      const auto type = os->attr->osdev.type;
      if (type == HWLOC_OBJ_OSDEV_GPU) computes |= std::string_view(os->name).starts_with("nvml");
      if (type == HWLOC_OBJ_OSDEV_COPROC) computes = true;
      if (type == HWLOC_OBJ_OSDEV_OPENFABRICS) port = os->name;
      if (type == HWLOC_OBJ_OSDEV_NETWORK && port.empty()) port = os->name;
    }
    // A 3D controller (0x0302), other display controller (0x0380) or accelerator (0x12) of NVIDIA
    // or AMD is a compute GPU. The VGA chip of a board (0x0300) is not.
    const bool is_makers = pci.vendor_id == 0x10de || pci.vendor_id == 0x1002;
    computes |= is_makers && (pci.class_id == 0x0302 || pci.class_id == 0x0380 || kind == 0x12);
    if (computes) {
      add_leaf(device, above, NodeKind::gpu, gpus_, cat("gpu", gpus_));
      ++gpus_;
    } else if (kind == 0x02 || !port.empty()) {
      if (kind == 0x01) return;  // a disk attached over a network
      add_leaf(device, above, NodeKind::nic, cards_, port.empty() ? cat("nic", cards_) : port);
      ++cards_;
      // If the speed of the port is unknown, the bandwidth of the card's slot is used, which the
      // port cannot exceed. A virtual card has no slot.
      const double port_speed = is_this_host_ ? port_GBps(port) : 0;
      const bool has_slot = has_speed(pci.linkspeed);
      const double GBps = port_speed > 0 ? port_speed
                          : has_slot     ? GBps_of(pci.linkspeed)
                                         : kUnknownCardGBps;
      graph_.connect({.from = by_object_[device],
                      .to = network(),
                      .kind = LinkClass::network,
                      .GBps = GBps,
                      .latency_us = usual_latency_us(LinkClass::network),
                      .assumed = port_speed == 0 && !has_slot});
    }
  }

  void add_leaf(hwloc_obj_t device, int above, NodeKind kind, int number, std::string name) {
    by_object_[device] = graph_.add({.kind = kind, .number = number, .name = std::move(name)});
    connect(above, by_object_[device], LinkClass::pci, GBps_of(device->attr->pcidev.linkspeed));
  }

  int network() {
    if (network_ < 0) {
      network_ = graph_.add(
          {.kind = NodeKind::network_switch, .host = -1, .number = 0, .name = "network"});
    }
    return network_;
  }

  // ---- NVLink and xGMI

  // Returns the GPU, NVLink switch or NUMA node of an object in hwloc's matrix; -1: none of these.
  int end_of(hwloc_obj_t object) {
    if (object->type == HWLOC_OBJ_OS_DEVICE) object = object->parent;
    if (const auto found = by_object_.find(object); found != by_object_.end()) return found->second;
    if (object->type != HWLOC_OBJ_PCI_DEVICE) return place_of(object);
    return nvlink_switch();
  }

  // Returns the node of the NVLink switches. All switches of a host form one fabric; a GPU's links
  // to them add up.
  int nvlink_switch() {
    if (nvlink_switch_ < 0) {
      nvlink_switch_ =
          graph_.add({.kind = NodeKind::nvlink_switch, .number = 0, .name = "nvlink_switch"});
    }
    return nvlink_switch_;
  }

  // Returns the node of the GPU with this PCI address; -1 if hwloc did not report it.
  int gpu_at(const std::string& bus) const {
    for (const auto& [object, node] : by_object_) {
      if (graph_.node(node).kind == NodeKind::gpu && address(object->attr->pcidev) == bus) {
        return node;
      }
    }
    return -1;
  }

  bool add_links_of_nvml() {
    std::map<std::pair<int, int>, double> declared;  // bandwidth declared, by GPU and other end
    for (const NvmlGpu& gpu : probe_nvml()) {
      const int node = gpu_at(gpu.bus);
      for (const NvmlLink& link : gpu.links) {
        const int other = link.peer == NvmlPeer::gpu ? gpu_at(link.bus) : nvlink_switch();
        if (node < 0 || other < 0 || node == other) continue;
        declared[{node, other}] += link.count * nvlink_GBps(gpu.compute_capability);
      }
    }
    std::map<std::pair<int, int>, double> links;  // by pair: both GPUs declare the same links
    for (const auto& [ends, GBps] : declared) links[std::minmax(ends.first, ends.second)] = GBps;
    for (const auto& [ends, GBps] : links) {
      connect(ends.first, ends.second, LinkClass::nvlink, GBps);
    }
    return !links.empty();
  }

  void add_fast_links() {
    if (is_this_host_ && add_links_of_nvml()) return;
    add_links_of("NVLinkBandwidth", LinkClass::nvlink, kOfNvlink);
    add_links_of("XGMIBandwidth", LinkClass::xgmi, kOfXgmi);
  }

  void add_links_of(const char* name, LinkClass kind, double part) {
    unsigned count = 1;
    hwloc_distances_s* matrix = nullptr;
    if (hwloc_distances_get_by_name(topology_.get(), name, &count, &matrix, 0) != 0 || count == 0) {
      return;
    }
    std::map<std::pair<int, int>, double> links;
    for (unsigned i = 0; i < matrix->nbobjs; ++i) {
      for (unsigned j = i + 1; j < matrix->nbobjs; ++j) {
        const auto megabytes = std::max(matrix->values[i * matrix->nbobjs + j],
                                        matrix->values[j * matrix->nbobjs + i]);
        if (megabytes == 0 || matrix->objs[i] == nullptr || matrix->objs[j] == nullptr) continue;
        const int a = end_of(matrix->objs[i]);
        const int b = end_of(matrix->objs[j]);
        if (a != b) links[std::minmax(a, b)] += static_cast<double>(megabytes) / 1000 * part;
      }
    }
    hwloc_distances_release(topology_.get(), matrix);
    for (const auto& [ends, GBps] : links) connect(ends.first, ends.second, kind, GBps);
  }

  const HwlocTopology& topology_;
  bool is_this_host_;
  Bitmap allowed_;  // null: all processors are allowed
  Graph graph_;
  std::vector<Place> places_;
  std::map<hwloc_obj_t, int> by_object_;  // graph nodes of GPUs and cards
  int gpus_ = 0;
  int cards_ = 0;
  int network_ = -1;
  int nvlink_switch_ = -1;
};

}  // namespace

Graph graph_of_this_host(Cores cores) {
  return Builder(open_this_host(Devices::include), true, cores).build();
}

Graph parse_hwloc_xml(std::string_view xml, const std::string& file) {
  return Builder(open_hwloc_xml(xml, file, Devices::include), false).build();
}

Graph synthetic_host_graph(const std::string& description) {
  return Builder(open_synthetic_host(description), false).build();
}

}  // namespace tutti
