// Derives findings from facts: what is wrong, where, the likely cause, and the remedy. Pure
// functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/doctor/facts.h"

namespace tutti::tool {

// Severity of a finding. error: jobs fail, hang or give wrong results. warning: jobs may do so, or
// are slow. note: information.
enum class Severity { note, warning, error };

std::string_view name(Severity severity);

struct Finding {
  std::string check;
  Severity severity = Severity::note;
  std::string what;
  std::string where;  // a host, rank, interface or pair
  std::string cause;
  std::string remedy;
};

// Names of the checks, in the order of the report.
namespace check {
inline constexpr const char* kHosts = "hosts";
inline constexpr const char* kVersions = "versions";
inline constexpr const char* kSettings = "settings";
inline constexpr const char* kToken = "token";
inline constexpr const char* kTraffic = "traffic";
inline constexpr const char* kRendezvous = "rendezvous";
inline constexpr const char* kCores = "cores";
inline constexpr const char* kMemory = "memory";
inline constexpr const char* kOpenFiles = "open files";
inline constexpr const char* kMemlock = "locked memory";
inline constexpr const char* kShm = "/dev/shm";
inline constexpr const char* kClock = "clock";
inline constexpr const char* kFabrics = "fabrics";
inline constexpr const char* kInterfaces = "interfaces";
inline constexpr const char* kReach = "connections";
inline constexpr const char* kMtu = "MTU";
inline constexpr const char* kJob = "job";
inline constexpr const char* kAnswers = "known answers";
inline constexpr const char* kLinks = "links";
}  // namespace check

// Diagnoses each host's facts and the differences between hosts. `here`: the token of the doctor's
// own process.
std::vector<Finding> diagnose(const std::vector<HostFacts>& hosts, const TokenFacts& here = {});

// Diagnoses the connections between hosts.
std::vector<Finding> diagnose_network(const std::vector<HostFacts>& hosts,
                                      const std::vector<Reach>& reaches);

// Diagnoses the results of the test job.
std::vector<Finding> diagnose_job(const std::vector<HostFacts>& hosts, const JobResult& result);

// Returns true if a finding prevents a job from starting or would make it hang.
bool rules_out_a_job(const std::vector<Finding>& findings);

}  // namespace tutti::tool
