#include "tools/tutti/top/jobs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "tools/process_list.h"
#include "tools/tutti/top/listeners.h"
#include "transport/bootstrap/discovery/job.h"
#include "transport/bootstrap/discovery/job_sources.h"
#include "transport/bootstrap/handshake/handshake.h"

namespace tutti::tool {

namespace {

using Variables = std::map<std::string, std::string>;

constexpr int kLargestPort = 65535;

Environment reader_of(const Variables& variables) {
  return [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
}

// Returns the token of the process, possibly from a file. Its length is not checked, since the job
// accepted it.
std::string token_in(const Environment& environment, int pid) {
  if (const auto token = environment("TUTTI_TOKEN")) return *token;
  const auto path = environment("TUTTI_TOKEN_FILE");
  if (!path) return "";
  return token_in_file(path->starts_with('/') ? *path : cat("/proc/", pid, "/cwd/", *path));
}

// Returns the rendezvous address of the process's job, which identifies the job. Must agree with
// find_place() in job.cc.
std::string meeting_in(const Environment& environment, const FoundJob& found) {
  if (const auto rendezvous = environment("TUTTI_RENDEZVOUS")) return *rendezvous;
  const std::string host = environment("MASTER_ADDR").value_or(found.address);
  const std::string text = environment("MASTER_PORT").value_or(cat(found.port));
  const int port = job_number("MASTER_PORT", text, 0, kLargestPort);
  if (host.empty() || port == 0) {
    throw Error(ErrorCode::bootstrap,
                cat(found.source, " does not publish the address where its ranks meet"),
                {.remedy = "set MASTER_ADDR, MASTER_PORT and TUTTI_TOKEN for the job"});
  }
  return bootstrap::endpoint_text(host, static_cast<uint16_t>(port));
}

// Returns the job of a process; nothing if it is not in a job of several ranks. Throws if the job
// cannot be watched.
std::optional<JobPlace> place_of(int pid) {
  const Variables variables = environment_of(pid);
  const Environment environment = reader_of(variables);
  const std::optional<FoundJob> found = find_job(environment);
  if (!found || found->size == 1) return std::nullopt;
  JobPlace place{.name = meeting_in(environment, *found),
                 .addresses = listeners_of(pid),
                 .token = token_in(environment, pid),
                 .key = {},
                 .who = {}};
  place.key = bootstrap::bootstrap_key(place.token, found->incarnation);
  std::string program;
  std::getline(std::ifstream(cat("/proc/", pid, "/comm")) >> std::ws, program);
  place.who = cat("pid ", pid, " (", printable(program), ")");
  return place;
}

bool have_one_in_common(const std::vector<bootstrap::SocketAddress>& some,
                        const std::vector<bootstrap::SocketAddress>& others) {
  return std::ranges::any_of(some, [&](const bootstrap::SocketAddress& address) {
    return std::ranges::find(others, address.text(), &bootstrap::SocketAddress::text) !=
           others.end();
  });
}

// Returns true if both are the same job. The token alone or the rendezvous address alone do not
// suffice: two jobs may have the same token, and successive jobs may use the same address.
bool same_job(const JobPlace& a, const JobPlace& b) { return a.name == b.name && a.key == b.key; }

std::vector<pid_t> own_processes() {
  std::vector<pid_t> pids = all_processes();
  std::erase_if(pids, [](pid_t pid) {
    struct stat state {};
    return ::stat(cat("/proc/", pid).c_str(), &state) != 0 || state.st_uid != ::geteuid();
  });
  std::ranges::sort(pids);
  return pids;
}

int number_of_job(const std::string& text, int most) {
  const auto number = parse_number<int>(text);
  if (number && *number >= 1 && *number <= most) return *number;
  throw Error(ErrorCode::invalid_argument,
              cat("--job: '", text, "' is neither HOST:PORT nor a process id"),
              {.remedy = "use HOST:PORT, or the pid of a rank on this host"});
}

// Resolves "HOST:PORT". Throws for malformed text and for an unknown host.
std::vector<bootstrap::SocketAddress> resolve_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  const int port = number_of_job(text.substr(colon + 1), kLargestPort);
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return bootstrap::resolve(host, static_cast<uint16_t>(port));
}

// Returns true if a rank on this host listens at the address, or if the address is the job's
// rendezvous, whose rank may have died.
bool belongs_to(const JobPlace& place, const std::vector<bootstrap::SocketAddress>& addresses) {
  if (have_one_in_common(place.addresses, addresses)) return true;
  try {
    return have_one_in_common(resolve_endpoint(place.name), addresses);
  } catch (const Error&) {  // the job used a rendezvous file or another address
    return false;
  }
}

// Returns the job at an address. For a job on this host, the result also contains its restart count
// and the addresses of other ranks.
JobPlace place_at(const std::string& job) {
  const std::string token = job_token();
  std::vector<JobPlace> here = running_jobs();
  if (!token.empty()) {
    std::erase_if(here, [&](const JobPlace& place) { return place.token != token; });
  }
  const auto named = std::ranges::find(here, job, &JobPlace::name);
  if (named != here.end()) return std::move(*named);
  const std::vector<bootstrap::SocketAddress> addresses = resolve_endpoint(job);
  const auto met = std::ranges::find_if(
      here, [&](const JobPlace& place) { return belongs_to(place, addresses); });
  if (met != here.end()) return std::move(*met);
  return {.name = job, .addresses = addresses, .token = token, .key = token, .who = {}};
}

// Returns the job of the process, which may be a child of a rank and need not listen.
JobPlace place_with(int pid) {
  std::optional<JobPlace> wanted = place_of(pid);
  if (!wanted) {
    throw Error(ErrorCode::invalid_argument,
                cat("process ", pid, " does not belong to a job of several ranks"),
                {.remedy = "use the pid or HOST:PORT of one of its ranks"});
  }
  for (const JobPlace& place : running_jobs()) {
    if (same_job(place, *wanted)) wanted->addresses = place.addresses;
  }
  if (!wanted->addresses.empty()) return std::move(*wanted);
  throw Error(ErrorCode::bootstrap,
              cat("no rank of the job of process ", pid, " listens on this host"),
              {.cause = "the job is starting or ending, or its ranks belong to another user",
               .remedy = "try again, or use `tutti top --job HOST:PORT`"});
}

}  // namespace

std::vector<JobPlace> running_jobs() {
  std::vector<JobPlace> places;
  for (const int pid : own_processes()) {
    try {
      std::optional<JobPlace> place = place_of(pid);
      if (!place || place->addresses.empty()) continue;
      const auto known = std::ranges::find_if(
          places, [&](const JobPlace& other) { return same_job(other, *place); });
      if (known == places.end()) {
        places.push_back(std::move(*place));
      } else {
        known->addresses.insert(known->addresses.end(), place->addresses.begin(),
                                place->addresses.end());
      }
    } catch (const Error&) {  // skips a job that cannot be watched
    }
  }
  return places;
}

JobPlace find_running_job(const std::string& job) {
  if (job.find(':') != std::string::npos) return place_at(job);
  if (!job.empty()) return place_with(number_of_job(job, 1 << 30));
  std::vector<JobPlace> places = running_jobs();
  if (places.size() == 1) return std::move(places.front());
  if (places.empty()) {
    throw Error(ErrorCode::invalid_argument, "no job of yours with several ranks runs on this host",
                {.remedy = "use `tutti top --job HOST:PORT` with TUTTI_TOKEN set to its token"});
  }
  std::string all;
  for (const JobPlace& place : places) all += cat("\n  ", place.name, ", ", place.who);
  throw Error(ErrorCode::invalid_argument, cat("several jobs run here:", all),
              {.remedy = "select one with `tutti top --job HOST:PORT`, or by the pid of a rank"});
}

}  // namespace tutti::tool
