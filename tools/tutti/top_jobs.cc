#include "tools/tutti/top_jobs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "base/settings.h"
#include "base/text.h"
#include "transport/bootstrap/handshake.h"
#include "transport/bootstrap/job.h"
#include "transport/bootstrap/job_sources.h"
#include "transport/bootstrap/meeting.h"
#include "transport/bootstrap/rendezvous.h"

namespace tutti::tool {

namespace {

using Variables = std::map<std::string, std::string>;

constexpr int kLargestPort = 65535;

// Empty where the process has gone, or is another user's.
Variables environment_of(int pid) {
  std::ifstream file(cat("/proc/", pid, "/environ"), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Variables variables;
  for (const std::string& variable : split(text, '\0')) {
    const size_t end = variable.find('=');
    if (end != std::string::npos) variables[variable.substr(0, end)] = variable.substr(end + 1);
  }
  return variables;
}

Environment reader_of(const Variables& variables) {
  return [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
}

// The token as the process finds it, which may be in a file.
std::string token_in(const Environment& environment) {
  settings().set("TUTTI_TOKEN", environment("TUTTI_TOKEN").value_or(""));
  settings().set("TUTTI_TOKEN_FILE", environment("TUTTI_TOKEN_FILE").value_or(""));
  return job_token();
}

// What the ranks of the process's job were told of where they meet: as job_from_environment() reads
// it, but of another process.
void find_addresses(const Environment& environment, const FoundJob& found, JobPlace& place) {
  constexpr std::string_view kFile = "file:";
  const std::string meeting = environment("TUTTI_RENDEZVOUS").value_or("");
  if (!environment("MASTER_ADDR") && meeting.starts_with(kFile)) {
    bootstrap::FileRendezvous file(meeting.substr(kFile.size()));
    const std::string told = file.get(bootstrap::kRankZeroKey).value_or("");
    place.name = meeting;
    place.addresses = {bootstrap::parse_rank_zero(told)};
    return;
  }
  Job job;
  job.master_address = environment("MASTER_ADDR").value_or(found.address);
  const std::string port = environment("MASTER_PORT").value_or(cat(found.port));
  job.master_port = static_cast<uint16_t>(job_number("MASTER_PORT", port, 0, kLargestPort));
  if (job.master_address.empty() || job.master_port == 0) {
    throw Error(ErrorCode::bootstrap, cat(found.source, " keeps to itself where its ranks meet"),
                {.remedy = "set MASTER_ADDR, MASTER_PORT and TUTTI_TOKEN for the job"});
  }
  place.name = bootstrap::endpoint_text(job.master_address, job.master_port);
  // torchrun's own store has the first of these.
  constexpr int kTorchrunsPorts = 8;
  if (environment("TORCHELASTIC_RUN_ID") && !environment("TUTTI_LAUNCHER_FD")) {
    job.master_ports = std::min(1 + kTorchrunsPorts, 1 + kLargestPort - job.master_port);
  }
  const std::vector<std::string> interfaces =
      split(environment("TUTTI_INTERFACE").value_or(""), ',');
  place.addresses = bootstrap::on_all_ports(
      job, bootstrap::resolve_master(job.master_address, job.master_port,
                                     interfaces.empty() ? "" : interfaces.front()));
}

// Nothing where the process is in no job of several. Throws where that job cannot be watched.
std::optional<JobPlace> place_of(int pid) {
  const Variables variables = environment_of(pid);
  const Environment environment = reader_of(variables);
  const std::optional<FoundJob> found = find_job(environment);
  if (!found || found->size == 1) return std::nullopt;
  JobPlace place;
  find_addresses(environment, *found, place);
  place.key = bootstrap::bootstrap_key(token_in(environment), found->incarnation);
  std::string program;
  std::getline(std::ifstream(cat("/proc/", pid, "/comm")) >> std::ws, program);
  place.who = cat("pid ", pid, " (", printable(program), ")");
  return place;
}

std::vector<int> own_processes() {
  std::vector<int> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    int pid = 0;
    const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (status != std::errc{} || end != name.data() + name.size()) continue;
    struct stat state {};
    if (::stat(entry.path().c_str(), &state) == 0 && state.st_uid == ::geteuid()) {
      pids.push_back(pid);
    }
  }
  std::ranges::sort(pids);
  return pids;
}

JobPlace place_at(const std::string& job, size_t colon) {
  const std::string token = job_token();  // before others' are read
  if (token.empty()) {
    for (JobPlace& place : running_jobs()) {
      if (place.name == job) return std::move(place);
    }
  }
  const int port = job_number("--job", job.substr(colon + 1), 1, kLargestPort);
  std::string host = job.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {.name = job,
          .addresses = bootstrap::resolve(host, static_cast<uint16_t>(port)),
          .key = token,
          .who = {}};
}

}  // namespace

std::vector<JobPlace> running_jobs() {
  std::vector<JobPlace> places;
  for (const int pid : own_processes()) {
    try {
      std::optional<JobPlace> place = place_of(pid);
      if (!place || std::ranges::find(places, place->key, &JobPlace::key) != places.end()) continue;
      places.push_back(std::move(*place));
    } catch (const Error&) {  // not one that can be watched
    }
  }
  return places;
}

JobPlace find_running_job(const std::string& job) {
  if (const size_t colon = job.rfind(':'); colon != std::string::npos) return place_at(job, colon);
  if (!job.empty()) {
    const int pid = job_number("--job", job, 1, 1 << 30);
    if (std::optional<JobPlace> place = place_of(pid)) return std::move(*place);
    throw Error(ErrorCode::invalid_argument, cat("process ", pid, " is in no job of several ranks"),
                {.remedy = "name one of its ranks, or HOST:PORT of its rank 0"});
  }
  std::vector<JobPlace> places = running_jobs();
  if (places.size() == 1) return std::move(places.front());
  if (places.empty()) {
    throw Error(ErrorCode::invalid_argument, "no job of yours with several ranks runs on this host",
                {.remedy = "name it: `tutti top --job HOST:PORT` with its TUTTI_TOKEN set"});
  }
  std::string all;
  for (const JobPlace& place : places) all += cat("\n  ", place.name, ", ", place.who);
  throw Error(ErrorCode::invalid_argument, cat("several jobs run here:", all),
              {.remedy = "name one: `tutti top --job HOST:PORT`, or the pid of a rank"});
}

}  // namespace tutti::tool
