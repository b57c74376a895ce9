#include "topology/nccl_xml.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "topology/bus_address.h"
#include "topology/link_speeds.h"
#include "topology/xml_file.h"

namespace tutti {
namespace {

// Far beyond any real file; so that a hostile one takes neither memory nor time.
constexpr size_t kMostDevices = 1 << 16;
constexpr size_t kMostOfAKind =
    1024;  // of NUMA nodes, which are all linked to each other, and GPUs
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
      xml_.refuse(system, "there is no <system>", "name a topology file of NCCL's format");
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
    connect_fast_links();
    number_gpus();
    return std::move(graph_);
  }

 private:
  struct Cpu {
    int node = 0;
    Processor processor;
  };
  struct Gpu {
    int node = 0;
    int cpu = 0;  // node
    std::string bus;
    int capability = 0;
    std::string gcn;
    pugi::xml_node element;  // empty where the file says nothing but the PCI device
  };

  // ---- attributes

  std::string_view text(const pugi::xml_node& node, const char* attribute) const {
    return node.attribute(attribute).value();
  }
  template <typename Number>
  Number number_or(const pugi::xml_node& node, const char* attribute, Number absent) const {
    const std::string_view word = text(node, attribute);
    if (word.empty()) return absent;
    const auto value = parse_number<Number>(word);
    if (!value || !std::isfinite(static_cast<double>(*value))) {
      xml_.refuse(node, cat(attribute, "=", in_quotes(word), " is not a number"));
    }
    return *value;
  }
  // As number_or; writers of these files put -1 where they do not know.
  template <typename Number>
  Number known_or(const pugi::xml_node& node, const char* attribute, Number unknown) const {
    const auto value = number_or<Number>(node, attribute, unknown);
    return value == Number{-1} ? unknown : value;
  }
  std::string bus(const pugi::xml_node& node, const char* attribute) const {
    return bus_address(text(node, attribute));
  }
  // The PCI class: "0x030200", also without "0x" or in capitals. 0: unknown.
  uint32_t pci_class(const pugi::xml_node& node, const char* attribute) const {
    std::string_view word = text(node, attribute);
    if (word.starts_with("0x") || word.starts_with("0X")) word.remove_prefix(2);
    uint32_t value = 0;
    std::from_chars(word.data(), word.data() + word.size(), value, 16);
    return value;
  }
  int natural_or(const pugi::xml_node& node, const char* attribute, int absent) const {
    const int value = number_or<int>(node, attribute, absent);
    if (value < 0 && value != absent) {
      xml_.refuse(node, cat(attribute, "=\"", value, "\" must not be negative"));
    }
    return value;
  }

  // "16 GT/s", "16.0 GT/s PCIe", "16GT/s"; the default where the file does not say. An unknown
  // width is 0, -1 or, from the kernel, 255.
  double pci_speed(const pugi::xml_node& pci, double unknown) const {
    const std::string_view word = text(pci, "link_speed");
    int lanes = known_or(pci, "link_width", 0);
    if (lanes == 255) lanes = 0;
    if (lanes < 0 || lanes > 64)
      xml_.refuse(pci, cat("link_width=\"", lanes, "\" is no width of PCI Express"));
    if (word.empty() || word == "-1" || word.starts_with("Unknown")) return unknown;
    double gigatransfers = 0;
    const auto [end, status] =
        std::from_chars(word.data(), word.data() + word.size(), gigatransfers);
    std::string_view unit = word.substr(static_cast<size_t>(end - word.data()));
    if (unit.starts_with(' ')) unit.remove_prefix(1);
    if (status != std::errc{} || !unit.starts_with("GT/s") || !(gigatransfers > 0) ||
        gigatransfers > 1024) {
      xml_.refuse(pci, cat("link_speed=", in_quotes(word), " is no speed of PCI Express"),
                  "write it as \"16 GT/s\"");
    }
    return pci_GBps(gigatransfers, lanes == 0 ? 16 : lanes);
  }

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
    const std::string hash(text(cpu, "host_hash"));
    const int host = hosts_.try_emplace(hash, static_cast<int>(hosts_.size())).first->second;
    const int numa = number_or<int>(cpu, "numaid", static_cast<int>(cpus_.size()));
    if (!cpu_numbers_.emplace(std::pair(host, numa), xml_.line_of(cpu)).second) {
      xml_.refuse(cpu, cat("numaid=\"", numa, "\" is there twice, first in line ",
                           cpu_numbers_[{host, numa}]));
    }
    const int node = add(cpu, NodeKind::numa_node, host, numa, cat("numa_node", numa));
    cpus_.push_back({node,
                     {.arch = std::string(text(cpu, "arch")),
                      .vendor = std::string(text(cpu, "vendor")),
                      .family = number_or<int>(cpu, "familyid", 0),
                      .model = number_or<int>(cpu, "modelid", 0)}});
    read_below(cpu, node, node, 0);
  }

  void read_below(const pugi::xml_node& above, int node, int cpu, int depth) {
    if (depth > kDeepest) xml_.refuse(above, cat("more than ", kDeepest, " levels of PCI"));
    for (const pugi::xml_node& child : above.children()) {
      if (child.type() != pugi::node_element) continue;
      const std::string_view kind = child.name();
      if (kind == "pci") {
        read_pci(child, node, cpu, depth);
      } else if (kind == "nic") {
        read_nic(child, node, kUnknownPciGBps);
      } else if (kind != "gpu") {  // other versions' elements say nothing of the way bytes take
        continue;
      } else {
        xml_.refuse(child, "<gpu> outside of a <pci>");
      }
    }
  }

  void read_pci(const pugi::xml_node& pci, int above, int cpu, int depth) {
    const std::string address = bus(pci, "busid");
    if (address.empty()) xml_.refuse(pci, "<pci> has no busid");
    const uint32_t type = pci_class(pci, "class");
    if (type == kNvlinkSwitch) nvlink_switch_buses_.emplace(graph_.node(above).host, address);
    const pugi::xml_node gpu = pci.child("gpu");
    const pugi::xml_node nic = pci.child("nic");
    if (gpu || type >> 16 == 0x03 || type >> 16 == 0x12) {
      read_gpu(pci, gpu, above, cpu);
    } else if (nic || type >> 16 == 0x02) {
      read_card(pci, nic, above);
    } else if (type >> 8 == 0x0604 || pci.child("pci")) {
      const int node =
          add(pci, NodeKind::pci_switch, graph_.node(above).host, -1, cat("pci_switch ", address));
      connect(above, node, LinkClass::pci, pci_speed(pci, kUnknownPciGBps));
      read_below(pci, node, cpu, depth + 1);
    }  // else: a disk, or what else there may be
  }

  void read_gpu(const pugi::xml_node& pci, const pugi::xml_node& gpu, int above, int cpu) {
    Gpu added{
        .cpu = cpu, .bus = bus(pci, "busid"), .gcn = std::string(text(gpu, "gcn")), .element = gpu};
    // AMD's `sm` counts compute units.
    if (gpu && added.gcn.empty()) added.capability = std::max(known_or(gpu, "sm", 0), 0);
    const int number = gpu ? natural_or(gpu, "dev", -1) : -1;
    if (gpus_.size() == kMostOfAKind || number >= static_cast<int>(kMostDevices)) {
      xml_.refuse(pci, cat("more than ", kMostOfAKind, " GPUs, or a dev beyond ", kMostDevices));
    }
    const int host = graph_.node(above).host;
    for (const Gpu& other : gpus_) {
      if (graph_.node(other.node).host != host) continue;
      if (other.bus == added.bus) {
        xml_.refuse(pci, cat("there are two GPUs with busid=", in_quotes(added.bus)));
      }
      if (number >= 0 && graph_.node(other.node).number == number) {
        xml_.refuse(gpu, cat("dev=\"", number, "\" is that of the GPU on bus ",
                             printable(other.bus, 40), ", too"));
      }
    }
    added.node = add(pci, NodeKind::gpu, host, number, cat("gpu ", added.bus));
    connect(above, added.node, LinkClass::pci, pci_speed(pci, gpu_slot_GBps(added.capability)));
    gpus_.push_back(std::move(added));
  }

  // A card of several ports shares its slot between them.
  void read_card(const pugi::xml_node& pci, const pugi::xml_node& nic, int above) {
    const double slot = pci_speed(pci, kUnknownPciGBps);
    const auto ports = std::distance(nic.children("net").begin(), nic.children("net").end());
    if (ports > 1) {
      const int card = add(pci, NodeKind::pci_switch, graph_.node(above).host, -1,
                           cat("card ", bus(pci, "busid")));
      connect(above, card, LinkClass::pci, slot);
      read_nic(nic, card, slot);
    } else if (ports == 1) {
      read_nic(nic, above, slot);
    } else {  // a cloud's file, which leaves the rest to be probed
      const int host = graph_.node(above).host;
      const int card =
          add(pci, NodeKind::nic, host, unnamed_cards_++, cat("nic ", bus(pci, "busid")));
      connect(above, card, LinkClass::pci, slot);
      connect(card, network(), LinkClass::network, slot);
    }
  }

  void read_nic(const pugi::xml_node& nic, int above, double slot) {
    for (const pugi::xml_node& net : nic.children("net")) {
      const int host = graph_.node(above).host;
      const int number = natural_or(net, "dev", -1);
      const std::string name(text(net, "name"));
      // Without a device on PCI, NCCL may tell it once for each NUMA node.
      const auto [known, is_new] = nets_.try_emplace({host, number, name}, -1);
      if (is_new) {
        known->second = add(net, NodeKind::nic, host, number, name.empty() ? "net" : name);
        const double megabits = known_or<double>(net, "speed", 0);
        if (!(megabits >= 0) || megabits > 1e8) {
          xml_.refuse(net, cat("speed=", in_quotes(text(net, "speed")), " is no speed in Mbit/s"));
        }
        const double latency = known_or<double>(net, "latency", 0);
        if (latency < 0) xml_.refuse(net, "latency must not be negative");
        graph_.connect({known->second, network(), LinkClass::network,
                        megabits > 0 ? megabits / 8000 : slot,
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

  // ---- what is not in the tree

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

  // Each of two GPUs tells of the links between them; those are the same links.
  void connect_fast_links() {
    for (const Gpu& gpu : gpus_) {
      for (const pugi::xml_node& link : gpu.element.children()) {
        const std::string_view kind = link.name();
        if (kind == "nvlink") {
          connect_fast(gpu, link, LinkClass::nvlink, nvlink_GBps(gpu.capability));
        } else if (kind == "xgmi") {
          connect_fast(gpu, link, LinkClass::xgmi, xgmi_GBps(gpu.gcn));
        } else if (kind == "c2c") {
          const double megabytes = number_or<double>(link, "bw", 0);
          const int count = natural_or(link, "count", 1);
          if (!(megabytes > 0) || megabytes > 1e9 || count == 0 || count > 1024) {
            xml_.refuse(link, "<c2c> has no bandwidth that can be");
          }
          connect(gpu.node, gpu.cpu, LinkClass::c2c, megabytes * count / 1000);
        }
      }
    }
    for (const auto& [ends, link] : fast_) {
      const auto back = fast_.find({ends.second, ends.first});
      if (back == fast_.end()) {
        connect(ends.first, ends.second, link.kind, link.GBps);
      } else if (ends.first < ends.second) {
        connect(ends.first, ends.second, link.kind, std::max(link.GBps, back->second.GBps));
      }
    }
  }

  void connect_fast(const Gpu& gpu, const pugi::xml_node& link, LinkClass kind, double each) {
    const int count = natural_or(link, "count", 1);
    if (count == 0 || count > 1024) {
      xml_.refuse(link, cat("count=\"", count, "\" is not from 1 to 1024"));
    }
    const int host = graph_.node(gpu.node).host;
    const uint32_t type = pci_class(link, "tclass");
    const std::string target = bus(link, "target");
    int other = -1;
    if (const Gpu* peer = gpu_at(host, target)) {
      other = peer->node;
    } else if (type == kNvlinkSwitch || nvlink_switch_buses_.contains({host, target})) {
      other = nvlink_switch(link, host);
    } else if (type == kPowerBridge) {  // POWER: to the processor
      other = gpu.cpu;
    }
    // To itself, or to a GPU that the file does not have: nobody can use it.
    if (other < 0 || other == gpu.node) return;
    // Several elements to one end add up: as many as there are NVLink switches.
    Fast& known = fast_[{gpu.node, other}];
    known = {kind, known.GBps + count * each};
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

  struct Fast {
    LinkClass kind = LinkClass::nvlink;
    double GBps = 0;
  };

  XmlFile xml_;
  Graph graph_;
  std::map<std::string, int> hosts_;  // by host_hash
  std::map<std::pair<int, int>, int32_t> cpu_numbers_;
  std::vector<Cpu> cpus_;
  std::vector<Gpu> gpus_;
  std::map<std::tuple<int, int, std::string>, int> nets_;
  std::map<std::pair<int, int>, Fast> fast_;                   // from a GPU, as it tells them
  std::map<int, int> nvlink_switches_;                         // by host
  std::set<std::pair<int, std::string>> nvlink_switch_buses_;  // host and PCI address
  int unnamed_cards_ = 0;
  int network_ = -1;
};

}  // namespace

Graph parse_nccl_topology(std::string_view xml, const std::string& file) {
  return NcclReader(xml, file).read();
}

}  // namespace tutti
