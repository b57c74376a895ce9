// tutti doctor: diagnoses hosts, network and settings before a job is started.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "tools/doctor/diagnose.h"
#include "tools/doctor/gather.h"
#include "tools/doctor/host_process.h"
#include "tools/doctor/job_check.h"
#include "tools/doctor/local.h"
#include "tools/doctor/report.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/host_options.h"

namespace tutti::tool {

namespace {

struct DoctorOptions {
  int ranks = 0;  // 0: number of cores
  HostOptions places;
  std::string json;
  int patience = 20;  // seconds
};

// Returns the port that jobs without `tutti run` would use on rank 0's host.
uint16_t master_port() {
  const char* text = std::getenv("MASTER_PORT");
  const int port = text == nullptr ? 0 : std::atoi(text);
  return port > 0 && port < 65536 ? static_cast<uint16_t>(port) : 0;
}

// Shows the current step, on a terminal only.
void progress(const std::string& what) {
  if (::isatty(STDERR_FILENO) == 1) std::cerr << "tutti doctor: " << what << " ...\n";
}

// Diagnoses settings that are not passed to other hosts, so that no host reports them.
std::vector<Finding> diagnose_own_settings(const std::vector<HostFacts>& hosts) {
  std::vector<Finding> findings;
  for (const SettingMistake& mistake : tolerate_setting_mistakes()) {
    const bool is_reported = std::ranges::any_of(hosts, [&](const HostFacts& host) {
      return std::ranges::count(host.setting_problems, mistake.why) > 0;
    });
    if (is_reported) continue;
    findings.push_back({check::kSettings, Severity::error, mistake.why, "here", "",
                        cat("correct ", mistake.name, " in the environment, or unset it")});
  }
  return findings;
}

Examination examine(const DoctorOptions& options) {
  const std::vector<Host> named = find_hosts(options.places);
  const int ranks = ranks_of_job(options.ranks, named);
  const std::vector<Host> dealt = with_ranks(ranks, named);
  const size_t count = dealt.size();
  if (count < named.size() && !options.places.hosts.empty()) {
    throw UsageError(cat(ranks, " ranks use only ", count, " of the ", named.size(), " hosts"));
  }
  std::vector<std::string> names;
  for (const Host& host : named.empty() ? named : dealt) names.push_back(host.name);
  Examination found;
  {
    progress(cat("asking ", count, count == 1 ? " host" : " hosts"));
    Hosts hosts({.hosts = names,
                 .ranks = ranks_of(dealt),
                 .patience = std::chrono::seconds(options.patience),
                 .port = master_port()});
    hosts.look();
    found.token = look_at_token(hosts.nonce());
    if (count > 1) {
      progress("testing the connections between hosts");
      found.reaches = hosts.reach();
    }
    found.hosts = hosts.facts();
  }
  found.findings = diagnose(found.hosts, found.token);
  const auto add = [&](const std::vector<Finding>& more) {
    found.findings.insert(found.findings.end(), more.begin(), more.end());
  };
  add(diagnose_own_settings(found.hosts));
  add(diagnose_network(found.hosts, found.reaches));
  if (rules_out_a_job(found.findings)) return found;
  progress(cat("running a job of ", ranks, " ranks"));
  found.job = run_job(ranks, named.empty() ? named : dealt);
  add(diagnose_job(found.hosts, *found.job));
  return found;
}

int doctor(const DoctorOptions& options) {
  // A host that disappears meanwhile is a finding, so SIGPIPE must not end the doctor. The signal
  // is blocked, not ignored, so that child processes have the default action.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  std::ofstream file;
  if (options.json != "-") file = open_for_writing(options.json, "--json");
  const Examination found = examine(options);
  if (options.json == "-") {
    std::cout << to_json(found).dump(2, Json::BadText::replace) << '\n';
  } else {
    print(std::cout, found);
    if (file.is_open()) {
      append(file, options.json, to_json(found).dump(2, Json::BadText::replace) + "\n", "--json");
    }
  }
  return found.ok() ? 0 : 1;
}

}  // namespace

void add_doctor(CommandLine& line) {
  const auto options = std::make_shared<DoctorOptions>();
  Command command = line.add("doctor", "diagnose hosts, network and settings");
  command
      .add_option("-n,--ranks", options->ranks,
                  "total number of ranks of the planned job (default: the total of all hosts' "
                  "slots; if no slots are given, the number of hosts times the number of cores "
                  "that this process may use here)")
      .between(1, 1 << 20);
  add_host_options(command, options->places);
  command
      .add_option("--json", options->json,
                  "write the report as JSON to this file (- for standard output)")
      .type_name("FILE");
  command
      .add_option("--patience", options->patience, "time to wait for a host's answer, in seconds")
      .between(1, 3600)
      .show_default();
  command.footer(
      "Examples:\n"
      "  tutti doctor                        this host, with a rank for each core\n"
      "  tutti doctor -n 16 --hosts a,b      two hosts, as `tutti run -n 16 --hosts a,b` uses "
      "them\n"
      "  TUTTI_INTERFACE=ib0 tutti doctor --hosts a,b --json report.json\n"
      "Checks each host (limits, versions, settings, clock, token), then the connections between "
      "all\n"
      "hosts with small and full-size packets, then runs a test job: every collective, type and "
      "operator\n"
      "with known results, and the latency and bandwidth between pairs of ranks. A stage that an "
      "earlier\n"
      "error makes impossible is skipped. No special privileges are required.\n"
      "The exit code is 1 if an error was found, else 0; warnings and notes do not count.");
  command.runs([options] { return doctor(*options); });

  // Internal commands: the process of `tutti doctor` on each host, and the ranks of its job.
  Command host = line.add("doctor-host", "serve a `tutti doctor` on another host");
  host.hide();
  host.runs(run_doctor_host);
  const auto hosts = std::make_shared<std::vector<std::string>>();
  Command rank = line.add("doctor-rank", "run a rank of the test job of `tutti doctor`");
  rank.hide();
  rank.add_option("hosts", *hosts, "hosts of the ranks, in order").separated_by_commas();
  rank.runs([hosts] {
    return run_doctor_rank(hosts->empty() ? std::vector<Host>() : parse_hosts(*hosts));
  });
}

}  // namespace tutti::tool
