// Diagnoses single hosts and differences between hosts.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <set>

#include "base/median.h"
#include "base/settings.h"
#include "base/text.h"
#include "tools/doctor/diagnose.h"

namespace tutti::tool {

namespace {

constexpr uint64_t kMiB = 1 << 20;
// Smallest sufficient memlock limit of a host with RDMA devices. Registered memory is locked, and
// the buffer pools of RDMA libraries already use part of the limit.
constexpr uint64_t kMemlockForRdma = 1024 * kMiB;
constexpr uint64_t kUsualMemlock = 8 * kMiB;  // Linux's own default
// Memory per rank: buffers, its share of shared memory, and a small program.
constexpr uint64_t kMemoryOfARank = 64 * kMiB;
// Threshold of a warning: the size of Docker's /dev/shm.
constexpr uint64_t kLittleShm = 64 * kMiB;
constexpr uint64_t kShmOfARank = 16 * kMiB;
// File descriptors that a rank needs per other rank, and those that its program needs.
constexpr uint64_t kDescriptorsOfARank = 4;
constexpr uint64_t kDescriptorsBesides = 128;
// Clock difference in seconds above which traces and logs of two hosts cannot be merged.
constexpr double kClocksDiffer = 0.1;
// Clock difference in seconds above which build tools, tickets and file servers fail.
constexpr double kClocksWrong = 5;

using Findings = std::vector<Finding>;
using Hosts = std::vector<HostFacts>;

// The hosts that share a value.
struct HostsWithValue {
  std::string value;
  std::vector<const HostFacts*> hosts;
};

std::vector<HostsWithValue> camps(const Hosts& hosts,
                                  const std::function<std::string(const HostFacts&)>& value) {
  std::vector<HostsWithValue> found;
  for (const HostFacts& host : hosts) {
    const std::string its = value(host);
    auto camp = std::ranges::find(found, its, &HostsWithValue::value);
    if (camp == found.end()) camp = found.insert(found.end(), {its, {}});
    camp->hosts.push_back(&host);
  }
  std::ranges::stable_sort(found, std::greater(),
                           [](const HostsWithValue& camp) { return camp.hosts.size(); });
  return found;
}

std::string names(const std::vector<const HostFacts*>& hosts) {
  std::string text;
  for (const HostFacts* host : hosts) text += cat(text.empty() ? "" : ", ", host->name);
  return text;
}

// Returns a text: "1 on a, b; 2 on c".
std::string who_has_what(const std::vector<HostsWithValue>& camps) {
  std::string text;
  for (const HostsWithValue& camp : camps) {
    text += cat(text.empty() ? "" : "; ", camp.value.empty() ? "(empty)" : camp.value, " on ",
                names(camp.hosts));
  }
  return text;
}

// Returns the hosts that differ from the majority.
std::string minority(const std::vector<HostsWithValue>& camps) {
  std::vector<const HostFacts*> others;
  for (size_t i = 1; i < camps.size(); ++i) {
    others.insert(others.end(), camps[i].hosts.begin(), camps[i].hosts.end());
  }
  return names(others);
}

void check_versions(const Hosts& hosts, Findings& findings) {
  const auto wire = camps(hosts, [](const HostFacts& h) { return cat(h.wire_version); });
  const auto version = camps(hosts, [](const HostFacts& h) { return h.version; });
  const auto build = camps(hosts, [](const HostFacts& h) { return h.build.substr(0, 12); });
  const std::string remedy = "install the same build of Tutti on all hosts, at the same path";
  if (wire.size() > 1) {
    findings.push_back({check::kVersions, Severity::error,
                        cat("ranks would refuse each other: wire version ", who_has_what(wire)),
                        minority(wire), "two versions of Tutti are installed", remedy});
  }
  if (version.size() > 1) {
    findings.push_back({check::kVersions, wire.size() > 1 ? Severity::error : Severity::warning,
                        cat("Tutti's version is ", who_has_what(version)), minority(version),
                        "two versions of Tutti are installed", remedy});
  } else if (build.size() > 1 && wire.size() == 1) {
    findings.push_back(
        {check::kVersions, Severity::warning,
         cat("the program is not the same on all hosts: SHA-256 ", who_has_what(build)),
         minority(build), "different builds of one version, or builds for different processors",
         remedy});
  }
  const auto kernel = camps(hosts, [](const HostFacts& h) { return h.kernel; });
  if (kernel.size() > 1) {
    findings.push_back({check::kVersions, Severity::note,
                        cat("the kernel is ", who_has_what(kernel)), minority(kernel), "",
                        "none, unless there are other problems"});
  }
}

// Reports a setting whose values differ between hosts. If it is a setting that ranks compare during
// the handshake (`wire`), ranks would fail, and the finding is an error; otherwise a warning.
void compare_setting(const Hosts& hosts, const SettingInfo& info, Findings& findings) {
  const std::string name(info.name);
  const auto found = camps(hosts, [&](const HostFacts& host) {
    const auto value = host.settings.find(name);
    return value == host.settings.end() ? std::string(info.default_value) : value->second;
  });
  if (found.size() < 2) return;
  findings.push_back(
      {check::kSettings, info.wire ? Severity::error : Severity::warning,
       cat(name, " is ", who_has_what(found)), minority(found),
       "the setting comes from the shell environment there (profile, container image)",
       cat("remove it there, or set it here: `tutti run` passes the settings of "
           "this shell to all hosts")});
}

void check_settings(const Hosts& hosts, Findings& findings) {
  for (const HostFacts& host : hosts) {
    for (const std::string& problem : host.setting_problems) {
      findings.push_back({check::kSettings, Severity::error, problem, host.name, "",
                          "correct it in the environment of that host, or here"});
    }
    for (const std::string& warning : host.setting_warnings) {
      findings.push_back({check::kSettings, Severity::warning, warning, host.name,
                          "the setting has no effect", "correct or remove the setting"});
    }
  }
  if (!hosts.empty() && !hosts.front().tune_problem.empty()) {
    findings.push_back({check::kSettings, Severity::warning, hosts.front().tune_problem,
                        hosts.front().name, "rank 0 there uses default costs instead",
                        "correct it, or run `tutti tune` there"});
  }
  // Settings that may differ, because they belong to a host or have no effect on others.
  const std::set<std::string_view> kOwn = {"TUTTI_TOKEN_FILE", "TUTTI_INTERFACE", "TUTTI_TOPOLOGY",
                                           "TUTTI_RSH",        "TUTTI_LOG",       "TUTTI_TUNE_FILE",
                                           "TUTTI_TOKEN"};
  for (const SettingInfo& info : all_settings()) {
    if (!info.internal && !kOwn.contains(info.name)) compare_setting(hosts, info, findings);
  }
  for (const HostFacts& host : hosts) {
    if (!host.settings.contains("TUTTI_FAULT")) continue;
    findings.push_back({check::kSettings, Severity::error, "TUTTI_FAULT injects faults into ranks",
                        host.name, "the variable is left over from a test", "unset TUTTI_FAULT"});
  }
}

void check_tokens(const Hosts& hosts, const TokenFacts& here, Findings& findings) {
  Hosts with_token;
  for (const HostFacts& host : hosts) {
    if (!host.token.problem.empty()) {
      findings.push_back({check::kToken, Severity::error, host.token.problem, host.name, "",
                          "correct the file, or unset TUTTI_TOKEN_FILE there"});
    } else if (!host.token.source.empty()) {
      with_token.push_back(host);
    }
  }
  const size_t hosts_with_token = with_token.size();
  if (!here.fingerprint.empty()) {
    HostFacts doctor;
    doctor.name = "here";
    doctor.token = here;
    with_token.push_back(doctor);
  }
  const auto found =
      camps(with_token, [](const HostFacts& host) { return host.token.fingerprint; });
  if (found.size() > 1) {
    std::string text;
    for (const HostsWithValue& camp : found) {
      text += &camp == &found.front() ? "one on " : "; another on ";
      for (const HostFacts* host : camp.hosts) {
        text +=
            cat(host == camp.hosts.front() ? "" : ", ", host->name, " (", host->token.source, ")");
      }
    }
    const bool tie = found[0].hosts.size() == found[1].hosts.size();
    findings.push_back({check::kToken, Severity::error,
                        cat("not all hosts have the same token: ", text),
                        tie ? cat(names(found[0].hosts), ", ", minority(found)) : minority(found),
                        "a stale token, from another job or from an old copy of the file",
                        "copy the file to all hosts, or unset both settings there: `tutti run` "
                        "passes a token to all its ranks, other launchers do not"});
  } else if (hosts_with_token > 0 && hosts_with_token < hosts.size() && here.source.empty()) {
    std::vector<const HostFacts*> have;
    for (const HostFacts& host : with_token) have.push_back(&host);
    findings.push_back(
        {check::kToken, Severity::warning,
         cat("only ", names(have), " has a token (", with_token[0].token.source, ")"), names(have),
         "a left-over in the environment there", "unset it there, or set it on all hosts"});
  }
}

void check_rendezvous(const HostFacts& host, Findings& findings) {
  const RendezvousFacts& meeting = host.rendezvous;
  if (!meeting.problem.empty()) {
    findings.push_back({check::kRendezvous, Severity::error, meeting.problem,
                        cat(host.name, ", TUTTI_RENDEZVOUS=file:", meeting.file),
                        "the path is wrong there, or its file system is not mounted",
                        "use a file in a folder that is shared and writable on all hosts"});
  } else if (!meeting.address.empty()) {
    findings.push_back(
        {check::kRendezvous, meeting.answers ? Severity::error : Severity::warning,
         cat("the rendezvous file contains the address ", meeting.address,
             meeting.answers ? ", where another job runs" : ", where no process listens"),
         cat(host.name, ", ", meeting.file, ".rank0"),
         meeting.answers ? "two jobs use the same rendezvous file" : "a left-over of a killed job",
         meeting.answers ? "use a separate file for each job" : "remove it"});
  }
}

void check_cores(const HostFacts& host, Findings& findings) {
  if (host.ranks <= host.cores) return;
  const bool narrowed = host.cores < host.all_cores;
  findings.push_back(
      {check::kCores, Severity::warning,
       cat(host.ranks, " ranks share ", host.cores, " core", host.cores == 1 ? "" : "s"), host.name,
       narrowed ? cat("a container, a batch system or taskset limits this process to ", host.cores,
                      " of ", host.all_cores, " cores")
                : "more ranks than cores were requested",
       narrowed ? "request more cores, or start fewer ranks (-n)" : "start fewer ranks (-n)"});
}

void check_memory(const HostFacts& host, Findings& findings) {
  const uint64_t wanted = kMemoryOfARank * static_cast<uint64_t>(host.ranks);
  if (host.container_memory < wanted) {
    findings.push_back({check::kMemory, Severity::warning,
                        cat("the container is limited to ", human_bytes(host.container_memory),
                            " for ", host.ranks, " ranks"),
                        host.name,
                        "the memory limit of its control group, which includes shared memory",
                        cat("raise it to at least ", human_bytes(wanted),
                            " plus the program's own needs; ranks that exceed it are killed")});
  }
  if (host.memory_available > 0 && host.memory_available < wanted) {
    findings.push_back({check::kMemory, Severity::warning,
                        cat(human_bytes(host.memory_available), " of memory are available for ",
                            host.ranks, " ranks"),
                        host.name, "other programs use the rest",
                        "end them, or start fewer ranks"});
  }
}

void check_open_files(const HostFacts& host, uint64_t all_ranks, Findings& findings) {
  const uint64_t wanted = kDescriptorsOfARank * all_ranks + kDescriptorsBesides;
  if (host.open_files >= wanted) return;
  findings.push_back({check::kOpenFiles, Severity::error,
                      cat("a process may open ", host.open_files, " files; a rank of ", all_ranks,
                          " needs up to ", wanted),
                      host.name, "the hard limit (ulimit -Hn)",
                      cat("raise it to ", wanted,
                          " or more: /etc/security/limits.conf, LimitNOFILE "
                          "of the service, --ulimit of the container")});
}

void check_memlock(const HostFacts& host, Findings& findings) {
  const bool rdma = !host.rdma_devices.empty();
  if (host.memlock >= (rdma ? kMemlockForRdma : kUsualMemlock)) return;
  const std::string what = cat("a process may lock ", human_bytes(host.memlock),
                               " of memory (memlock is too small for "
                               "RDMA)");
  findings.push_back(
      {check::kMemlock, rdma ? Severity::error : Severity::note, what, host.name,
       rdma ? cat("the limit (ulimit -l), and there are RDMA devices (", host.rdma_devices[0],
                  "), which lock the memory they register")
            : "the limit (ulimit -l); without an RDMA device it has no effect",
       "ulimit -l unlimited: memlock in /etc/security/limits.conf, LimitMEMLOCK of the service "
       "(of sshd's, too), --ulimit memlock=-1 of the container"});
}

void check_shm(const HostFacts& host, Findings& findings) {
  const std::string remedy = "mount -o remount,size=N /dev/shm; --shm-size of the container";
  const std::string cause =
      "Tutti does not use it, but UCX, MPI libraries and PyTorch data loaders do";
  if (host.shm_size == 0) {
    findings.push_back({check::kShm, Severity::warning, "there is no /dev/shm", host.name, cause,
                        "mount a tmpfs there"});
  } else if (host.shm_size <= kLittleShm) {
    findings.push_back({check::kShm, Severity::warning,
                        cat("/dev/shm has only ", human_bytes(host.shm_size)), host.name,
                        cause + "; a container's default is 64 MiB", remedy});
  } else if (host.shm_free < kShmOfARank * static_cast<uint64_t>(host.ranks)) {
    findings.push_back({check::kShm, Severity::warning,
                        cat("/dev/shm has only ", human_bytes(host.shm_free), " left of ",
                            human_bytes(host.shm_size)),
                        host.name, cause + "; files of killed programs remain there",
                        "check `ls -l /dev/shm`, and remove unused files"});
  }
}

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f s", value);
  return text;
}

// Compares each clock with the median, so that the deviating host is named. With two hosts,
// compares with the one that agrees better with the doctor's clock.
void check_clocks(const Hosts& hosts, Findings& findings) {
  if (hosts.size() < 2) return;
  std::vector<double> offsets;
  for (const HostFacts& host : hosts) offsets.push_back(host.clock_offset);
  const auto nearer = [](double a, double b) { return std::abs(a) < std::abs(b); };
  const double middle =
      hosts.size() > 2 ? median(offsets) : *std::ranges::min_element(offsets, nearer);
  for (const HostFacts& host : hosts) {
    const double off = host.clock_offset - middle;
    if (std::abs(off) - host.clock_error < kClocksDiffer) continue;
    const bool wrong = std::abs(off) - host.clock_error > kClocksWrong;
    findings.push_back({check::kClock, wrong ? Severity::error : Severity::warning,
                        cat("the clock is ", seconds(std::abs(off)), off > 0 ? " ahead" : " behind",
                            " (+/- ", seconds(host.clock_error), ")"),
                        host.name, "no time service synchronizes it",
                        "start chrony, ntpd or systemd-timesyncd there; until then logs and traces "
                        "of ranks cannot be compared"});
  }
}

void check_fabrics(const HostFacts& host, Findings& findings) {
  for (const FabricFacts& fabric : host.fabrics) {
    if (fabric.problem.empty()) continue;
    // A transport that was requested is required; others are optional.
    const auto transport = host.settings.find("TUTTI_TRANSPORT");
    const bool wanted = transport != host.settings.end() &&
                        transport->second.find(fabric.name) != std::string::npos;
    if (!wanted && host.rdma_devices.empty()) continue;
    findings.push_back({check::kFabrics, wanted ? Severity::error : Severity::note,
                        cat(fabric.name, " cannot be used: ", fabric.problem), host.name,
                        wanted ? cat("TUTTI_TRANSPORT=", transport->second, " requests it")
                               : "there are RDMA devices, which require a fabric library",
                        "install its library there"});
  }
}

}  // namespace

std::string_view name(Severity severity) {
  switch (severity) {
    case Severity::note:
      return "note";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "?";
}

Findings diagnose(const Hosts& hosts, const TokenFacts& here) {
  Findings findings;
  Hosts known;
  uint64_t all_ranks = 0;
  for (const HostFacts& host : hosts) {
    all_ranks += static_cast<uint64_t>(host.ranks);
    if (host.problem.empty()) {
      known.push_back(host);
      continue;
    }
    findings.push_back(
        {check::kHosts, Severity::error, host.problem, host.name,
         "the host is down, the remote shell (TUTTI_RSH) cannot log in there without a prompt, or "
         "this program is not installed there at the same path",
         "try `ssh HOST PATH/tutti --version`, with TUTTI_RSH instead of ssh if it is set"});
  }
  check_versions(known, findings);
  check_settings(known, findings);
  check_tokens(known, here, findings);
  for (const HostFacts& host : known) {
    check_rendezvous(host, findings);
    check_cores(host, findings);
    check_memory(host, findings);
    check_open_files(host, all_ranks, findings);
    check_memlock(host, findings);
    check_shm(host, findings);
    check_fabrics(host, findings);
  }
  check_clocks(known, findings);
  return findings;
}

}  // namespace tutti::tool
