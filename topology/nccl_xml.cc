#include "topology/nccl_xml.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"
#include "topology/fast_links.h"
#include "topology/link_speeds.h"
#include "topology/nccl_file.h"

namespace tutti {
namespace {

// Limits far beyond any real file, which bound the memory and time that a hostile file can take.
constexpr size_t kMostDevices = 1 << 16;
constexpr size_t kMostOfAKind =
    1024;  // for NUMA nodes, which are all linked to each other, and GPUs
constexpr int kDeepest = 32;
// PCI classes.
constexpr uint32_t kNvlinkSwitch = 0x068000;
constexpr uint32_t kPowerBridge = 0x068001;

class NcclReader {
 public:
  NcclReader(std::string_view xml, const std::string& file) : xml_(xml, file) {}

  Graph read() {
    const pugi::xml_node system = xml_.child("system");
    if (!system) {
      xml_.refuse(system, "<system> is missing", "pass a topology file in NCCL's format");
    }
    for (const pugi::xml_node& cpu : system.children()) {
      if (cpu.type() != pugi::node_element) continue;
      if (std::string_view(cpu.name()) != "cpu") {
        xml_.refuse(cpu,
                    cat("<", printable(cpu.name(), 40), "> in <system>, where only <cpu> may be"));
      }
      read_cpu(cpu);
    }
    if (cpus_.empty()) xml_.refuse(system, "<system> has no <cpu>");
    connect_cpus();
    read_fast_links();
    number_gpus();
    check_fast_links();
    fast_.connect([&](int a, int b, LinkClass kind, double GBps) { connect(a, b, kind, GBps); });
    tell_what_is_missing();
    return std::move(graph_);
  }

 private:
  struct Cpu {
    int node = 0;
    Processor processor;
  };
  struct Gpu {
    int node = 0;
    int cpu = 0;  // node of its processor
    std::string bus;
    int capability = 0;
    std::string gcn;
    pugi::xml_node element;  // empty if the file states only the PCI device
  };

  // ---- the tree of a NUMA node

  int add(const pugi::xml_node& element, NodeKind kind, int host, int number, std::string name) {
    if (graph_.nodes().size() >= kMostDevices) {
      xml_.refuse(element, cat("more than ", kMostDevices, " devices"));
    }
    return graph_.add({.kind = kind, .host = host, .number = number, .name = printable(name, 60)});
  }
  void connect(int a, int b, LinkClass kind, double GBps) {
    graph_.connect({a, b, kind, GBps, usual_latency_us(kind)});
  }

  void read_cpu(const pugi::xml_node& cpu) {
    if (cpus_.size() == kMostOfAKind) xml_.refuse(cpu, cat("more than ", kMostOfAKind, " <cpu>"));
    const std::string hash(xml_.text(cpu, "host_hash"));
    const int host = hosts_.try_emplace(hash, static_cast<int>(hosts_.size())).first->second;
    const int numa = xml_.number_or<int>(cpu, "numaid", static_cast<int>(cpus_.size()));
    if (!cpu_numbers_.emplace(std::pair(host, numa), xml_.line_of(cpu)).second) {
      xml_.refuse(cpu, cat("numaid=\"", numa, "\" appears twice, first in line ",
                           cpu_numbers_[{host, numa}]));
    }
    const int node = add(cpu, NodeKind::numa_node, host, numa, cat("numa_node", numa));
    cpus_.push_back({node,
                     {.arch = std::string(xml_.text(cpu, "arch")),
                      .vendor = std::string(xml_.text(cpu, "vendor")),
                      .family = xml_.number_or<int>(cpu, "familyid", 0),
                      .model = xml_.number_or<int>(cpu, "modelid", 0)}});
    read_below(cpu, node, node, 0);
  }

  void read_below(const pugi::xml_node& above, int node, int cpu, int depth) {
    if (depth > kDeepest)
      xml_.refuse(above, cat("PCI is nested more than ", kDeepest, " levels deep"));
    for (const pugi::xml_node& child : above.children()) {
      if (child.type() != pugi::node_element) continue;
      const std::string_view kind = child.name();
      if (kind == "pci") {
        read_pci(child, node, cpu, depth);
      } else if (kind == "nic") {
        read_nic(child, node, kUnknownPciGBps);
      } else if (kind != "gpu") {  // elements of other versions, which do not affect routes
        continue;
      } else {
        xml_.refuse(child, "<gpu> outside of a <pci>");
      }
    }
  }

  void read_pci(const pugi::xml_node& pci, int above, int cpu, int depth) {
    const std::string address = xml_.bus(pci, "busid");
    if (address.empty()) xml_.refuse(pci, "<pci> has no busid");
    const uint32_t type = xml_.pci_class(pci, "class");
    if (type == kNvlinkSwitch) nvlink_switch_buses_.emplace(graph_.node(above).host, address);
    const pugi::xml_node gpu = pci.child("gpu");
    const pugi::xml_node nic = pci.child("nic");
    if (gpu || type >> 16 == 0x03 || type >> 16 == 0x12) {
      read_gpus(pci, gpu, above, cpu);
    } else if (nic || type >> 16 == 0x02) {
      read_card(pci, nic, above);
    } else if (type >> 8 == 0x0604 || pci.child("pci")) {
      const int node =
          add(pci, NodeKind::pci_switch, graph_.node(above).host, -1, cat("pci_switch ", address));
      connect(above, node, LinkClass::pci, xml_.pci_speed(pci, kUnknownPciGBps));
      read_below(pci, node, cpu, depth + 1);
    }  // otherwise a disk or an unrelated device
  }

  // Adds GPUs. Several GPUs that are one PCI device, such as the two halves of a module, share its
  // slot.
  void read_gpus(const pugi::xml_node& pci, const pugi::xml_node& first, int above, int cpu) {
    const auto gpus = pci.children("gpu");
    if (std::distance(gpus.begin(), gpus.end()) < 2) return read_gpu(pci, first, above, cpu);
    const std::string address = xml_.bus(pci, "busid");
    const int slot =
        add(pci, NodeKind::pci_switch, graph_.node(above).host, -1, cat("slot ", address));
    connect(above, slot, LinkClass::pci, xml_.pci_speed(pci, kUnknownPciGBps));
    shared_slots_.emplace(graph_.node(above).host, address);
    for (const pugi::xml_node& gpu : gpus) read_gpu(pci, gpu, slot, cpu);
  }

  void read_gpu(const pugi::xml_node& pci, const pugi::xml_node& gpu, int above, int cpu) {
    Gpu added{.cpu = cpu,
              .bus = xml_.bus(pci, "busid"),
              .gcn = std::string(xml_.text(gpu, "gcn")),
              .element = gpu};
    // AMD's `sm` is the number of compute units, not a compute capability.
    if (gpu && added.gcn.empty()) added.capability = std::max(xml_.known_or(gpu, "sm", 0), 0);
    const int number = gpu ? xml_.natural_or(gpu, "dev", -1) : -1;
    if (gpus_.size() == kMostOfAKind || number >= static_cast<int>(kMostDevices)) {
      xml_.refuse(pci, cat("more than ", kMostOfAKind, " GPUs, or a dev above ", kMostDevices));
    }
    const int host = graph_.node(above).host;
    for (const Gpu& other : gpus_) {
      if (graph_.node(other.node).host != host) continue;
      if (other.bus == added.bus && !shared_slots_.contains({host, added.bus})) {
        xml_.refuse(pci, cat("two GPUs have busid=", in_quotes(added.bus)));
      }
      if (number >= 0 && graph_.node(other.node).number == number) {
        xml_.refuse(gpu, cat("dev=\"", number, "\" is already used by the GPU on bus ",
                             printable(other.bus, 40), ", too"));
      }
    }
    added.node = add(pci, NodeKind::gpu, host, number, cat("gpu ", added.bus));
    connect(above, added.node, LinkClass::pci,
            xml_.pci_speed(pci, gpu_slot_GBps(added.capability)));
    gpus_.push_back(std::move(added));
  }

  // Adds the ports of a card, which share its slot.
  void read_card(const pugi::xml_node& pci, const pugi::xml_node& nic, int above) {
    const double slot = xml_.pci_speed(pci, kUnknownPciGBps);
    const auto ports = std::distance(nic.children("net").begin(), nic.children("net").end());
    if (ports > 1) {
      const int card = add(pci, NodeKind::pci_switch, graph_.node(above).host, -1,
                           cat("card ", xml_.bus(pci, "busid")));
      connect(above, card, LinkClass::pci, slot);
      read_nic(nic, card, slot);
    } else if (ports == 1) {
      read_nic(nic, above, slot);
    } else {  // the file of a cloud provider, which leaves the ports to probing
      const int host = graph_.node(above).host;
      const int card =
          add(pci, NodeKind::nic, host, unnamed_cards_++, cat("nic ", xml_.bus(pci, "busid")));
      connect(above, card, LinkClass::pci, slot);
      connect(card, network(), LinkClass::network, slot);
    }
  }

  void read_nic(const pugi::xml_node& nic, int above, double slot) {
    for (const pugi::xml_node& net : nic.children("net")) {
      const int host = graph_.node(above).host;
      const int number = xml_.natural_or(net, "dev", -1);
      const std::string name(xml_.text(net, "name"));
      // Without a PCI device, NCCL may list the card once per NUMA node.
      const auto [known, is_new] = nets_.try_emplace({host, number, name}, -1);
      if (is_new) {
        known->second = add(net, NodeKind::nic, host, number, name.empty() ? "net" : name);
        const double megabits = xml_.known_or<double>(net, "speed", 0);
        if (!(megabits >= 0)) {
          xml_.refuse(
              net, cat("speed=", in_quotes(xml_.text(net, "speed")), " is not a speed in Mbit/s"));
        }
        constexpr double kMostMegabits = 3.2e6;
        const bool is_absurd = megabits > kMostMegabits;
        if (is_absurd) {
          xml_.warn(net, cat("speed=", in_quotes(xml_.text(net, "speed")),
                             " exceeds any port: the slot's speed is used"));
        }
        const double latency = xml_.known_or<double>(net, "latency", 0);
        if (latency < 0) xml_.refuse(net, "latency must not be negative");
        graph_.connect({known->second, network(), LinkClass::network,
                        megabits > 0 && !is_absurd ? megabits / 8000 : slot,
                        latency > 0 ? latency : usual_latency_us(LinkClass::network)});
      }
      connect(above, known->second, LinkClass::pci, slot);
    }
  }

  int network() {
    if (network_ < 0) {
      network_ = graph_.add(
          {.kind = NodeKind::network_switch, .host = -1, .number = 0, .name = "network"});
    }
    return network_;
  }

  // ---- links outside the tree

  void connect_cpus() {
    for (size_t i = 0; i < cpus_.size(); ++i) {
      for (size_t j = i + 1; j < cpus_.size(); ++j) {
        if (graph_.node(cpus_[i].node).host != graph_.node(cpus_[j].node).host) continue;
        connect(cpus_[i].node, cpus_[j].node, LinkClass::system,
                std::min(between_packages_GBps(cpus_[i].processor),
                         between_packages_GBps(cpus_[j].processor)));
      }
    }
  }

  const Gpu* gpu_at(int host, std::string_view bus) const {
    const auto found = std::ranges::find_if(gpus_, [&](const Gpu& gpu) {
      return gpu.bus == bus && graph_.node(gpu.node).host == host;
    });
    return found == gpus_.end() ? nullptr : &*found;
  }

  void read_fast_links() {
    for (const Gpu& gpu : gpus_) {
      for (const pugi::xml_node& link : gpu.element.children()) {
        const std::string_view kind = link.name();
        if (kind == "nvlink") {
          read_fast(gpu, link, LinkClass::nvlink, nvlink_GBps(gpu.capability));
        } else if (kind == "xgmi") {
          read_fast(gpu, link, LinkClass::xgmi, xgmi_GBps(gpu.gcn));
        } else if (kind == "c2c") {
          const double megabytes = xml_.number_or<double>(link, "bw", 0);
          const int count = xml_.natural_or(link, "count", 1);
          if (!(megabytes > 0) || megabytes > 1e9 || count == 0 || count > 1024) {
            xml_.refuse(link, "<c2c> has no valid bandwidth");
          }
          connect(gpu.node, gpu.cpu, LinkClass::c2c, megabytes * count / 1000);
        }
      }
    }
  }

  // Treats GPUs that declare more NVLinks than they have ports as attached to a switch, and warns.
  void check_fast_links() {
    std::vector<FastLinks::Switched> switched;
    for (const Gpu& gpu : gpus_) {
      const int ports = nvlink_ports(gpu.capability);
      const int declared = fast_.links_of(gpu.node);
      if (!gpu.gcn.empty() || declared <= ports) continue;
      xml_.warn(gpu.element,
                cat(graph_.node(gpu.node).name, " has ", declared, " NVLinks, but this model has ",
                    ports, ": treated as ", ports, " to a switch"));
      switched.push_back({gpu.node, ports, nvlink_GBps(gpu.capability),
                          nvlink_switch(gpu.element, graph_.node(gpu.node).host)});
    }
    fast_.take_for_switched(switched);
  }

  void tell_what_is_missing() const {
    const auto tell = [&](const std::string& what) {
      log(LogLevel::warning, cat(xml_.name(), ": ", what));
    };
    const auto is_described = [](const Gpu& gpu) { return !gpu.element.empty(); };
    if (gpus_.empty()) {
      tell("the file lists no GPUs: NCCL adds those that it finds at run time");
    } else if (std::ranges::none_of(gpus_, is_described)) {
      tell("the file lists PCI devices only: NCCL adds GPU details such as NVLinks at run time");
    }
    const auto has_links = [&](const Gpu& gpu) { return fast_.has(gpu.node); };
    if (std::ranges::none_of(gpus_, has_links)) {
      // A GPU in a PCI slot may have no NVLink, but board-mounted GPUs of these kinds have some.
      const bool may_have = std::ranges::any_of(
          gpus_, [&](const Gpu& gpu) { return gpu.capability == 80 || gpu.capability >= 90; });
      if (may_have && gpus_.size() > 1) {
        tell("no GPU has an NVLink: if the file leaves them to NCCL, the search ignores them");
      }
      return;
    }
    for (const Gpu& gpu : gpus_) {
      const std::string& name = graph_.node(gpu.node).name;
      if (!has_links(gpu))
        tell(cat(name, " has neither NVLink nor xGMI, unlike other GPUs of the file"));
    }
  }

  void read_fast(const Gpu& gpu, const pugi::xml_node& link, LinkClass kind, double each) {
    const int count = xml_.natural_or(link, "count", 1);
    if (count == 0 || count > 1024) {
      xml_.refuse(link, cat("count=\"", count, "\" is not from 1 to 1024"));
    }
    const int host = graph_.node(gpu.node).host;
    const uint32_t type = xml_.pci_class(link, "tclass");
    const std::string target = xml_.bus(link, "target");
    int other = -1;
    if (const Gpu* peer = gpu_at(host, target)) {
      other = peer->node;
    } else if (type == kNvlinkSwitch || nvlink_switch_buses_.contains({host, target})) {
      other = nvlink_switch(link, host);
    } else if (type == kPowerBridge) {  // on POWER: a link to the processor
      other = gpu.cpu;
    }
    // The link ends at the GPU itself, or at a GPU that the file lacks, so it is unusable.
    if (other < 0 || other == gpu.node) return;
    fast_.add(gpu.node, other, kind, count, each);
  }

  int nvlink_switch(const pugi::xml_node& link, int host) {
    const auto [known, is_new] = nvlink_switches_.try_emplace(host, -1);
    if (is_new) known->second = add(link, NodeKind::nvlink_switch, host, 0, "nvlink_switch");
    return known->second;
  }

  // ---- numbers

  void number_gpus() {
    for (int host = 0; host < graph_.hosts(); ++host) {
      std::vector<const Gpu*> open;
      int next = 0;
      for (const Gpu& gpu : gpus_) {
        if (graph_.node(gpu.node).host != host) continue;
        if (graph_.node(gpu.node).number < 0) {
          open.push_back(&gpu);
        } else {
          next = std::max(next, graph_.node(gpu.node).number + 1);
        }
      }
      std::ranges::sort(open, {}, [](const Gpu* gpu) { return gpu->bus; });
      for (const Gpu* gpu : open) graph_.rename(gpu->node, next++, {});
    }
    for (const Gpu& gpu : gpus_) {
      const int number = graph_.node(gpu.node).number;
      graph_.rename(gpu.node, number, cat("gpu", number));
    }
  }

  NcclFile xml_;
  Graph graph_;
  std::map<std::string, int> hosts_;  // numbers of hosts by host_hash
  std::map<std::pair<int, int>, int32_t> cpu_numbers_;
  std::vector<Cpu> cpus_;
  std::vector<Gpu> gpus_;
  std::map<std::tuple<int, int, std::string>, int> nets_;
  FastLinks fast_;
  std::set<std::pair<int, std::string>> shared_slots_;  // slots that several GPUs share
  std::map<int, int> nvlink_switches_;                  // switch nodes by host
  // Buses of NVLink switches: host and PCI address.
  std::set<std::pair<int, std::string>> nvlink_switch_buses_;
  int unnamed_cards_ = 0;
  int network_ = -1;
};

}  // namespace

Graph parse_nccl_topology(std::string_view xml, const std::string& file) {
  return NcclReader(xml, file).read();
}

}  // namespace tutti
