#include "tools/doctor/report.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iomanip>
#include <limits>
#include <ostream>

#include "base/text.h"
#include "transport/paths/protection.h"

namespace tutti::tool {

namespace {

std::string bytes_or_unlimited(uint64_t bytes) {
  return bytes == HostFacts::kUnlimited ? "unlimited" : human_bytes(bytes);
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.3g" : "%.0f", value);
  return text;
}

// Returns the values of all hosts as text, or a single value if all hosts have the same one.
std::string on_each(const std::vector<HostFacts>& hosts,
                    const std::function<std::string(const HostFacts&)>& value) {
  std::string all;
  bool same = true;
  std::string first;
  for (const HostFacts& host : hosts) {
    if (!host.problem.empty()) continue;
    const std::string its = value(host);
    if (first.empty()) first = its;
    same = same && its == first;
    all += cat(all.empty() ? "" : "; ", host.name, ": ", its);
  }
  return same ? first : all;
}

std::string settings_text(const HostFacts& host) {
  std::string text;
  for (const auto& [name, value] : host.settings) {
    text += cat(text.empty() ? "" : " ", name, "=", value);
  }
  return text.empty() ? "all have their defaults" : text;
}

std::string setting_of(const HostFacts& host, const char* name) {
  const auto found = host.settings.find(name);
  return found == host.settings.end() ? "auto" : found->second;
}

std::string traffic_text(const HostFacts& host) {
  return cat("data over TCP is ", describe_protection(setting_of(host, "TUTTI_ENCRYPT"),
                                                      setting_of(host, "TUTTI_INTEGRITY"))
                                      .data);
}

std::string fabrics_text(const HostFacts& host) {
  std::string text;
  for (const FabricFacts& fabric : host.fabrics) {
    text += cat(text.empty() ? "" : "; ", fabric.name, " ");
    text += fabric.problem.empty() ? cat(fabric.version, ", ", fabric.devices.size(), " devices")
                                   : cat("not usable: ", fabric.problem);
  }
  return text.empty() ? "none besides shared memory and TCP" : text;
}

std::string interfaces_text(const HostFacts& host) {
  std::string text;
  for (const Rail& rail : host.rails) {
    text += cat(text.empty() ? "" : ", ", rail.interface.empty() ? "?" : rail.interface, " ",
                rail.address);
  }
  return text;
}

std::string clock_text(const std::vector<HostFacts>& hosts) {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  double error = 0;
  for (const HostFacts& host : hosts) {
    if (!host.problem.empty()) continue;
    least = std::min(least, host.clock_offset);
    most = std::max(most, host.clock_offset);
    error = std::max(error, host.clock_error);
  }
  return cat("all within ", number((most - least) * 1e3), " ms (+/- ", number(error * 1e3), " ms)");
}

std::string links_text(const std::vector<Link>& links) {
  std::string text;
  for (const bool between : {false, true}) {
    double slowest = std::numeric_limits<double>::infinity();
    double fastest = 0;
    double latest = 0;
    for (const Link& link : links) {
      if ((link.from_host != link.to_host) != between) continue;
      slowest = std::min(slowest, link.bandwidth_GBps);
      fastest = std::max(fastest, link.bandwidth_GBps);
      latest = std::max(latest, link.latency_us);
    }
    if (fastest == 0) continue;
    text += cat(text.empty() ? "" : "; ", between ? "between hosts " : "within a host ",
                number(slowest), " to ", number(fastest), " GB/s, up to ", number(latest), " us");
  }
  return text.empty() ? "no pairs" : text;
}

std::string reach_text(const std::vector<Reach>& reaches) {
  const auto good = std::ranges::count_if(reaches, &Reach::answered);
  return cat(good, " of ", reaches.size(), " connections between hosts work");
}

std::string mtu_text(const std::vector<Reach>& reaches) {
  int least = std::numeric_limits<int>::max();
  for (const Reach& reach : reaches) {
    if (reach.full_arrived) least = std::min(least, reach.packet);
  }
  return least == std::numeric_limits<int>::max()
             ? "not tried"
             : cat("packets of ", least, " bytes arrive unfragmented");
}

// Returns the state of a check, as given by its worst finding.
std::string state_of(const Examination& examination, const std::string& check) {
  Severity worst = Severity::note;
  for (const Finding& finding : examination.findings) {
    if (finding.check == check) worst = std::max(worst, finding.severity);
  }
  return worst == Severity::note ? "ok" : std::string(name(worst));
}

Json to_json(const Finding& finding) {
  return {{"check", finding.check}, {"severity", name(finding.severity)},
          {"what", finding.what},   {"where", finding.where},
          {"cause", finding.cause}, {"remedy", finding.remedy}};
}

// Returns the facts without the token's fingerprint, which is of no use to readers.
Json shown(HostFacts host) {
  host.token.fingerprint.clear();
  Json json = to_json(host);
  json["token"].erase("fingerprint");
  for (const char* limit : {"memlock", "open_files", "container_memory"}) {
    if (json[limit] == HostFacts::kUnlimited) json[limit] = nullptr;
  }
  return json;
}

void print_finding(std::ostream& out, const Finding& finding) {
  out << '\n' << name(finding.severity) << ": " << finding.check;
  if (!finding.where.empty()) out << ", " << finding.where;
  out << "\n  " << finding.what << '\n';
  if (!finding.cause.empty()) out << "  cause:  " << finding.cause << '\n';
  if (!finding.remedy.empty()) out << "  remedy: " << finding.remedy << '\n';
}

std::string count_of(const Examination& examination, Severity severity) {
  const auto count = std::ranges::count(examination.findings, severity, &Finding::severity);
  return cat(count == 0 ? "no" : cat(count), " ", name(severity), count == 1 ? "" : "s");
}

class CheckList {
 public:
  explicit CheckList(const Examination& examination)
      : e_(examination), answering_(std::ranges::count_if(e_.hosts, [](const HostFacts& host) {
          return host.problem.empty();
        })) {}

  std::vector<Check> make() {
    add(check::kHosts, cat(answering_, " of ", e_.hosts.size(), " answer"));
    add_programs();
    add_limits();
    add_network();
    add_job();
    return std::move(checks_);
  }

 private:
  void add(const char* check, const std::string& detail) {
    checks_.push_back({check, state_of(e_, check), detail});
  }
  void skip(const char* check, const std::string& why) {
    checks_.push_back({check, "skipped", why});
  }
  void each(const char* check, const std::function<std::string(const HostFacts&)>& value) {
    if (answering_ == 0) return skip(check, "no host answers");
    add(check, on_each(e_.hosts, value));
  }

  void add_programs() {
    each(check::kVersions, [](const HostFacts& h) {
      return cat("tutti ", h.version, ", wire ", h.wire_version, ", ", h.processor, ", Linux ",
                 h.kernel);
    });
    each(check::kSettings, settings_text);
    each(check::kToken, [](const HostFacts& h) {
      return h.token.source.empty() ? "none is set; `tutti run` creates one" : h.token.source;
    });
    each(check::kTraffic, traffic_text);
    each(check::kRendezvous, [](const HostFacts& h) {
      return h.rendezvous.file.empty() ? "no file is set" : h.rendezvous.file;
    });
    each(check::kFabrics, fabrics_text);
  }

  void add_limits() {
    each(check::kCores, [](const HostFacts& h) {
      return cat(h.ranks, " rank", h.ranks == 1 ? "" : "s", " on ", h.cores, " cores");
    });
    each(check::kMemory, [](const HostFacts& h) {
      return cat(human_bytes(h.memory), ", the container's limit is ",
                 bytes_or_unlimited(h.container_memory));
    });
    each(check::kOpenFiles, [](const HostFacts& h) {
      return h.open_files == HostFacts::kUnlimited ? "unlimited" : cat(h.open_files);
    });
    each(check::kMemlock, [](const HostFacts& h) {
      return cat(bytes_or_unlimited(h.memlock), h.rdma_devices.empty() ? ", no RDMA device" : "");
    });
    each(check::kShm, [](const HostFacts& h) { return human_bytes(h.shm_size); });
  }

  void add_network() {
    if (e_.hosts.size() == 1 || answering_ < 2) {
      for (const char* check : {check::kClock, check::kInterfaces, check::kReach, check::kMtu}) {
        skip(check, e_.hosts.size() == 1 ? "one host only" : "fewer than two hosts answer");
      }
      return;
    }
    add(check::kClock, clock_text(e_.hosts));
    add(check::kInterfaces, on_each(e_.hosts, interfaces_text));
    add(check::kReach, reach_text(e_.reaches));
    add(check::kMtu, mtu_text(e_.reaches));
  }

  void add_job() {
    if (!e_.job || !e_.job->ran) {
      const char* why = e_.job ? "the job failed" : "skipped because of the errors above";
      e_.job ? add(check::kJob, why) : skip(check::kJob, why);
      skip(check::kAnswers, why);
      skip(check::kLinks, why);
      return;
    }
    const auto cases = static_cast<size_t>(e_.job->cases);
    add(check::kJob, cat("works, over ", e_.job->transport));
    add(check::kAnswers,
        cat(cases - e_.job->wrong.size(), " of ", cases, " collectives are right"));
    add(check::kLinks, links_text(e_.job->links));
  }

  const Examination& e_;
  const std::ptrdiff_t answering_;
  std::vector<Check> checks_;
};

}  // namespace

bool Examination::ok() const {
  return std::ranges::none_of(
      findings, [](const Finding& finding) { return finding.severity == Severity::error; });
}

std::vector<Check> checks_of(const Examination& examination) {
  return CheckList(examination).make();
}

void print(std::ostream& out, const Examination& examination) {
  for (const Check& check : checks_of(examination)) {
    out << std::left << std::setw(9) << check.state << std::setw(15) << check.name << check.detail
        << '\n';
  }
  for (const Severity severity : {Severity::note, Severity::warning, Severity::error}) {
    for (const Finding& finding : examination.findings) {
      if (finding.severity == severity) print_finding(out, finding);
    }
  }
  out << '\n'
      << count_of(examination, Severity::error) << ", " << count_of(examination, Severity::warning)
      << ", " << count_of(examination, Severity::note) << '\n';
}

Json to_json(const Examination& examination) {
  Json json = {{"ok", examination.ok()},
               {"hosts", Json::array()},
               {"checks", Json::array()},
               {"findings", Json::array()},
               {"pairs", Json::array()}};
  for (const HostFacts& host : examination.hosts) json["hosts"].push_back(shown(host));
  for (const Check& check : checks_of(examination)) {
    json["checks"].push_back(
        {{"name", check.name}, {"state", check.state}, {"detail", check.detail}});
  }
  for (const Finding& finding : examination.findings) {
    json["findings"].push_back(to_json(finding));
  }
  if (examination.job) json["pairs"] = to_json(*examination.job)["links"];
  return json;
}

}  // namespace tutti::tool
