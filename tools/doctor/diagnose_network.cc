// Diagnoses the connections between hosts and their packet sizes.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/text.h"
#include "tools/doctor/diagnose.h"

namespace tutti::tool {

namespace {

using Findings = std::vector<Finding>;
using Hosts = std::vector<HostFacts>;

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

std::string interface_setting(const HostFacts& host) {
  const auto found = host.settings.find("TUTTI_INTERFACE");
  return found == host.settings.end() ? "" : found->second;
}

// Returns a text: "a has eth0 (10.0.0.1), eth1 (10.1.0.1)".
std::string interfaces_of(const HostFacts& host) {
  std::string text;
  for (const Interface& one : host.interfaces) {
    if (one.loopback || !one.up || one.addresses.empty()) continue;
    text += cat(text.empty() ? " has " : ", ", one.name, " (", one.addresses.front(), ")");
  }
  return host.name + (text.empty() ? " has no interface that is up and has an address" : text);
}

class Network {
 public:
  Network(const Hosts& hosts, const std::vector<Reach>& reaches)
      : hosts_(hosts), reaches_(reaches) {}

  Findings diagnose() {
    for (const HostFacts& host : hosts_) check_rails(host);
    find_lonely();
    for (const Reach& reach : reaches_) {
      if (lonely_.contains(reach.from) || lonely_.contains(reach.to)) continue;
      if (!reach.answered) {
        explain_failure(reach);
      } else {
        check_packets(reach);
      }
    }
    return findings_;
  }

 private:
  const HostFacts& from(const Reach& reach) const {
    return hosts_[static_cast<size_t>(reach.from)];
  }
  const HostFacts& to(const Reach& reach) const { return hosts_[static_cast<size_t>(reach.to)]; }

  std::string pair(const Reach& reach) const {
    return cat(from(reach).name, " (", reach.own.empty() ? "no address" : reach.own, ") to ",
               to(reach).name, " (", reach.address, ")");
  }

  const Reach* reverse(const Reach& reach) const {
    const auto found = std::ranges::find_if(reaches_, [&](const Reach& other) {
      return other.from == reach.to && other.to == reach.from && other.rail == reach.rail;
    });
    return found == reaches_.end() ? nullptr : &*found;
  }

  void check_rails(const HostFacts& host) {
    if (host.rail_problem.empty()) return;
    const std::string setting = interface_setting(host);
    if (setting.empty()) {
      findings_.push_back({check::kReach, Severity::error, host.rail_problem, host.name, "",
                           "bring up the network between the hosts; if a port is in use, choose "
                           "another MASTER_PORT"});
      return;
    }
    findings_.push_back(
        {check::kInterfaces, Severity::error, host.rail_problem, host.name,
         cat("TUTTI_INTERFACE=", setting, " selects the interface on which ranks listen"),
         cat("set TUTTI_INTERFACE to an interface of the network between the hosts, or unset it: ",
             interfaces_of(host))});
  }

  // Finds hosts without any connection. With three or more hosts, a host that can neither reach
  // another host nor be reached is a single finding.
  void find_lonely() {
    if (hosts_.size() < 3) return;
    for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
      int tries = 0;
      int successes = 0;
      const Reach* example = nullptr;
      for (const Reach& reach : reaches_) {
        if (reach.from != host && reach.to != host) continue;
        ++tries;
        if (reach.answered) ++successes;
        if (reach.from == host) example = &reach;
      }
      if (tries == 0 || successes > 0 || example == nullptr) continue;
      explain_failure(*example);
      findings_.back().what = cat("no host reaches ", hosts_[static_cast<size_t>(host)].name,
                                  ", and it reaches no host; for example: ", findings_.back().what);
      lonely_.insert(host);
    }
  }

  std::string why_no_route(const Reach& reach) const {
    const std::string words = cat(" (", std::strerror(reach.route_error), ")");
    if (reach.route_error == ENETUNREACH) {
      return cat("no route to it on ", from(reach).name, words);
    }
    return cat("a route on ", from(reach).name, " prohibits it", words);
  }

  std::string why_no_connection(const Reach& reach) const {
    const Reach* back = reverse(reach);
    switch (reach.connect_error) {
      case 0:
        return "another program listens there (a duplicate address or a proxy), or only small "
               "packets arrive";
      case ECONNREFUSED:
        return "a firewall rejects the connection (blocked port), or the address belongs to "
               "another host, since the doctor listens there";
      case EHOSTUNREACH:
        return "no host answers to the address in that network (the interface is down, another "
               "network or VLAN), or a firewall rejects the connection";
      case ETIMEDOUT:
        if (back != nullptr && back->answered) {
          return cat("only this direction fails: a firewall, most likely on ", to(reach).name,
                     ", drops packets to its ports (blocked ports), or routes differ by direction");
        }
        return reach.small_arrived
                   ? "datagrams arrive, so a firewall drops TCP (blocked ports)"
                   : "a firewall drops the packets (blocked ports), or they are lost on the way";
      default:
        return "the operating system refuses the connection";
    }
  }

  void explain_failure(const Reach& reach) {
    const Reach* back = reverse(reach);
    // The other side has no route back, so only the finding of that direction is reported.
    if (reach.route_error == 0 && back != nullptr && back->route_error != 0 &&
        !lonely_.contains(reach.from)) {
      return;
    }
    const std::string far_setting = interface_setting(to(reach));
    const std::string near_setting = interface_setting(from(reach));
    const bool wrong_interface = !far_setting.empty() || !near_setting.empty();
    Finding finding{.check = wrong_interface ? check::kInterfaces : check::kReach,
                    .severity = Severity::error,
                    .where = pair(reach)};
    finding.what =
        cat(from(reach).name, " cannot connect to ", to(reach).name, " at ", reach.address, ": ",
            reach.connect_error == 0 ? "the answer is not the doctor's"
                                     : std::strerror(reach.connect_error));
    if (is_loopback(reach.address)) {
      finding.cause = cat("the address is the loopback address of ", to(reach).name,
                          ", which no other host can reach");
    } else {
      finding.cause = reach.route_error != 0 ? why_no_route(reach) : why_no_connection(reach);
    }
    finding.remedy =
        reach.route_error != 0
            ? cat("see `ip route get ", reach.address, "` on ", from(reach).name,
                  "; add the route, or select another network with TUTTI_INTERFACE")
            : cat("open all ports between the hosts, since ranks listen on ports chosen by the "
                  "system, or select another network with TUTTI_INTERFACE");
    if (wrong_interface) {
      const std::string& setting = far_setting.empty() ? near_setting : far_setting;
      finding.cause += cat("; TUTTI_INTERFACE=", setting, " selected this network");
      finding.remedy =
          cat("use an interface of the network between the hosts: ", interfaces_of(from(reach)),
              "; ", interfaces_of(to(reach)));
    }
    findings_.push_back(finding);
  }

  void check_packets(const Reach& reach) {
    Finding finding{.check = check::kMtu,
                    .severity = reach.bulk ? Severity::warning : Severity::error,
                    .where = pair(reach)};
    const std::string copes =
        reach.bulk ? "; TCP works with smaller packets" : "; connections open, then hang";
    if (!reach.small_arrived) {
      if (reach.bulk) {
        finding.severity = Severity::note;
        finding.what = "datagrams get no answer, so the largest packet could not be tested";
        finding.cause = "a firewall lets only TCP through";
        finding.remedy = "none, if ranks use TCP";
      } else {
        finding.what = cat("only small packets arrive", copes);
        finding.cause = "an MTU on the path is smaller than that of the interfaces";
        finding.remedy = "set the same MTU on all interfaces and switches of this network";
      }
    } else if (reach.full_arrived && reach.bulk) {
      return;
    } else if (reach.common_arrived && reach.common_packet < reach.packet) {
      finding.what =
          cat("packets of ", reach.packet, " bytes, the MTU of ", from(reach).name,
              ", do not reach ", to(reach).name, ", whose MTU is ", reach.common_packet, copes);
      finding.cause = "the MTU of one of the two interfaces is wrong";
      finding.remedy = "set the same MTU on both ends: ip link set dev INTERFACE mtu N";
    } else {
      const int lost = reach.common_arrived ? reach.packet : reach.common_packet;
      finding.what = cat("packets of ", lost, " bytes, which both interfaces accept, are lost",
                         reach.bulk ? "; TCP works, because it discovers the path MTU" : copes);
      finding.cause =
          "an MTU on the path (a switch, a tunnel) is smaller than that of the interfaces";
      finding.remedy =
          "raise it there, or lower the MTU of the interfaces to the path's (find it with ping -M "
          "do -s N)";
    }
    findings_.push_back(finding);
  }

  const Hosts& hosts_;
  const std::vector<Reach>& reaches_;
  std::set<int> lonely_;
  Findings findings_;
};

}  // namespace

Findings diagnose_network(const Hosts& hosts, const std::vector<Reach>& reaches) {
  return Network(hosts, reaches).diagnose();
}

}  // namespace tutti::tool
