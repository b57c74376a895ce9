#include "base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/deadline.h"
#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace tutti {

namespace {

// Variables that are not library settings: bindings and tools read them themselves.
constexpr std::array<std::string_view, 6> kOfTools = {"TUTTI_MPI_ABI",     "TUTTI_PYTHON",
                                                      "TUTTI_TEST_DATA",   "TUTTI_TEST_FULL",
                                                      "TUTTI_TORCH_CACHE", "TUTTI_TORCH_PYTHON"};

constexpr std::array kSettings = {
    SettingInfo{"TUTTI_TRANSPORT", SettingType::string, "auto",
                "auto|shm|tcp|ucx|ofi|shm+tcp|shm+ucx|shm+ofi", true, false,
                "transport. auto: shared memory within a host; between hosts UCX or libfabric "
                "(ofi) if every host has a suitable network card, else TCP. A single name applies "
                "to all pairs of ranks; shm+NAME applies NAME between hosts only. UCX's own "
                "settings begin with UCX_, libfabric's with FI_"},
    SettingInfo{
        "TUTTI_RMA", SettingType::string, "auto", "auto|on|off", false, false,
        "remote memory access of UCX and libfabric for windows whose memory the library "
        "allocated: on, off (messages instead), or auto (on if a network card performs it)"},
    SettingInfo{"TUTTI_ALGORITHM", SettingType::string, "auto", "", true, false,
                "all-reduce algorithm; auto: the one with the lowest predicted time"},
    SettingInfo{"TUTTI_ALGORITHM_FILES", SettingType::string, "", "", true, false,
                "MSCCL XML files of algorithms to import, separated by colons"},
    SettingInfo{"TUTTI_TUNE_FILE", SettingType::string, "", "", false, false,
                "file of measured costs (`tutti tune`), which rank 0 reads; none: default costs; "
                "empty: a file in the user's cache folder"},
    SettingInfo{"TUTTI_DETERMINISTIC", SettingType::boolean, "0", "", true, false,
                "use only deterministic (canonical) algorithms: the bits of a result depend only "
                "on the inputs and the number of ranks"},
    SettingInfo{"TUTTI_GPU_PROTOCOL", SettingType::string, "auto",
                "auto|simple|lines|engines|staged", true, false,
                "protocol between GPUs: simple (kernels write slots, each with one flag), lines "
                "(kernels write lines that contain their flags), engines (copy engines), staged "
                "(through host memory), or auto (the fastest)"},
    SettingInfo{"TUTTI_PROGRESS_THREAD", SettingType::boolean, "0", "", false, false,
                "run a progress thread per process, so that calls overlap with computation even if "
                "no thread waits for them; the thread sleeps while no call is in flight"},
    SettingInfo{"TUTTI_TIMEOUT", SettingType::seconds, "300", "", false, false,
                "timeout of a call in seconds, after which the communicator is aborted; 0 and inf: "
                "no timeout"},
    SettingInfo{
        "TUTTI_UNEXPECTED_BYTES", SettingType::bytes, "64M", "", false, false,
        "maximum bytes of unexpected messages (received before a matching receive was posted) that "
        "a communicator buffers; beyond it senders block until a thread waits for the receive"},
    SettingInfo{"TUTTI_LATE_WARNING", SettingType::seconds, "2", "", false, false,
                "warn about a straggler: a rank for which others wait longer than this many "
                "seconds in three consecutive calls; 0: never"},
    SettingInfo{
        "TUTTI_REPORT", SettingType::string, "", "", false, false,
        "directory in which each rank writes a report (its state and last calls) when a "
        "communicator is aborted; `tutti top --report DIR` analyzes them; empty: no reports"},
    SettingInfo{"TUTTI_INIT_TIMEOUT", SettingType::seconds, "60", "", false, false,
                "timeout in seconds for all ranks to connect at startup"},
    SettingInfo{"TUTTI_NETWORK_TIMEOUT", SettingType::seconds, "10", "", false, false,
                "seconds without a response after which a host or its network is considered down; "
                "shorter outages only delay calls. With several interfaces in TUTTI_INTERFACE, "
                "the connection is retried over the others for the same time"},
    SettingInfo{"TUTTI_SPARES", SettingType::integer, "0", "0..", true, false,
                "number of spare ranks, the last ones of the job, which join after failures "
                "(tutti_grow); set by `tutti run --spares`"},
    SettingInfo{"TUTTI_TOKEN", SettingType::string, "", "", false, false,
                "secret shared by the ranks of one job, at least 128 bits; authenticates peers "
                "and encrypts the control channel"},
    SettingInfo{"TUTTI_TOKEN_FILE", SettingType::string, "", "", false, false,
                "file of mode 0600 with the token, used if TUTTI_TOKEN is not set"},
    SettingInfo{
        "TUTTI_ALLOW_SHORT_TOKEN", SettingType::boolean, "0", "", false, false,
        "accept a token shorter than 128 bits, which an eavesdropper on one handshake can guess"},
    SettingInfo{
        "TUTTI_ENCRYPT", SettingType::string, "auto", "auto|on|off", true, false,
        "encrypt data over TCP (TLS 1.3, keyed by the token); the control channel is always "
        "encrypted if there is a token; auto: off (TUTTI_INTEGRITY detects corruption)"},
    SettingInfo{"TUTTI_INTEGRITY", SettingType::string, "auto", "auto|on|off", true, false,
                "verify a 64-bit hash of each unencrypted message over TCP, so that corruption is "
                "an error; auto: between hosts; on: also within a host"},
    SettingInfo{"TUTTI_RENDEZVOUS", SettingType::string, "", "", false, false,
                "file:/PATH: shared file in which rank 0 publishes its address, instead of "
                "MASTER_ADDR and MASTER_PORT"},
    SettingInfo{
        "TUTTI_INTERFACE", SettingType::string, "", "", false, false,
        "network interface or address to listen on, or a list (eth0,eth1): TCP streams are spread "
        "over the listed interfaces and fail over between them; the first one carries the control "
        "channel; empty: the interface that routes to rank 0"},
    SettingInfo{"TUTTI_CONTROL_FANOUT", SettingType::integer, "32", "1..", true, false,
                "number of children per rank in the tree of the control channel"},
    SettingInfo{"TUTTI_TCP_STREAMS", SettingType::integer, "0", "0..", true, false,
                "number of TCP connections between each pair of ranks; 0: one per interface in "
                "TUTTI_INTERFACE"},
    SettingInfo{"TUTTI_NCCL_GPU", SettingType::string, "", "", false, false,
                "GPU class (h100 ...) whose costs the NCCL tuner plugin uses; empty: from the "
                "device's name"},
    SettingInfo{"TUTTI_NCCL_PROFILE", SettingType::string, "", "", false, false,
                "trace file of the NCCL profiler plugin; each communicator and rank writes its own "
                "file next to it; empty: no traces"},
    SettingInfo{"TUTTI_BIND", SettingType::string, "auto", "auto|none", false, false,
                "binding of local ranks to cores by `tutti run`"},
    SettingInfo{
        "TUTTI_TOPOLOGY", SettingType::string, "", "", false, false,
        "topology by which ranks are grouped (they are not bound to it): FILE.xml from lstopo, "
        "or synthetic:DESCRIPTION (hwloc); empty: the topology of this host"},
    SettingInfo{"TUTTI_RACK", SettingType::string, "", "", false, false,
                "position of this host in the network: the switches above it, outermost first "
                "(row2.rack7), by which hosts are grouped; empty: from Slurm or a host file "
                "(rack=row2.rack7)"},
    SettingInfo{"TUTTI_HOST", SettingType::string, "", "", false, false,
                "name of this host in messages, set by `tutti run` to the name it was given; "
                "empty: the kernel's host name"},
    SettingInfo{
        "TUTTI_RSH", SettingType::string, "ssh", "", false, false,
        "remote shell of `tutti run` and `tutti doctor --hosts`, called as RSH HOST COMMAND"},
    SettingInfo{"TUTTI_LAUNCH_FANOUT", SettingType::integer, "16", "1..", false, false,
                "maximum number of hosts that `tutti run`, and each of these hosts in turn, "
                "connects to directly; further hosts are reached through them"},
    SettingInfo{"TUTTI_LOG", SettingType::string, "warning", "error|warning|info|debug", false,
                false, "log level of the messages on standard error"},
    SettingInfo{
        "TUTTI_FAULT", SettingType::string, "", "", false, false,
        "faults to inject for tests, separated by commas: kill|stall|truncate|swap|abort:RANK:N at "
        "RANK's N-th message (from 1), or delay:RANK:N:MS, which delays it by MS milliseconds; "
        "swap exchanges two words of the next message over TCP"},
    SettingInfo{
        "TUTTI_MPI_SMALLEST", SettingType::string, "auto", "", true, false,
        "with an MPI program (`tutti mpi`): smallest block size in bytes for Tutti; smaller calls "
        "run in the MPI library; auto: the sizes at which Tutti was measured to be faster"},
    SettingInfo{"TUTTI_MPI_REPORT", SettingType::boolean, "0", "", false, false,
                "with an MPI program: at MPI_Finalize rank 0 prints which calls ran in Tutti, "
                "which ran in the MPI library, and why"},
    SettingInfo{"TUTTI_CPU", SettingType::string, "auto", "auto|baseline|avx2|avx512", false, false,
                "instruction set of the compute kernels, Tutti's and oneDNN's"},
    SettingInfo{"TUTTI_FIRST_CALL", SettingType::integer, "1", "1..", true, true,
                "sequence number of a communicator's first call, for tests of its overflow"},
    SettingInfo{"TUTTI_DOMAIN", SettingType::string, "", "", false, true,
                "placement of this rank on its host by the launcher: numa:N,cache:N"},
    SettingInfo{"TUTTI_LISTEN_FD", SettingType::integer, "-1", "", false, true,
                "file descriptor of the listening socket that rank 0 inherits from the launcher"},
    SettingInfo{"TUTTI_LAUNCHER_FD", SettingType::integer, "-1", "", false, true,
                "file descriptor of the pipe on which the launcher reports how ranks ended"},
    SettingInfo{"TUTTI_UNNEEDED_CODE", SettingType::integer, "0", "", false, true,
                "exit code of spare ranks that were not needed"},
};

const SettingInfo* info_of(std::string_view name) {
  const auto* found = std::ranges::find(kSettings, name, &SettingInfo::name);
  return found == kSettings.end() ? nullptr : found;
}

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::optional<bool> parse_boolean(std::string_view written) {
  const std::string text = in_lower_case(written);
  if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
  if (text == "0" || text == "false" || text == "no" || text == "off" || text.empty()) return false;
  return std::nullopt;
}

void check_value(const SettingInfo& info, std::string_view value) {
  bool good = true;
  std::string expected(name(info.type));
  switch (info.type) {
    case SettingType::string:
      if (!info.choices.empty()) {
        const std::vector<std::string> choices = split(info.choices, '|');
        good = std::ranges::find(choices, value) != choices.end();
        expected = cat("one of ", info.choices);
      }
      break;
    case SettingType::integer: {
      const auto number = parse_number<int64_t>(value);
      const std::string_view least = info.choices.substr(0, info.choices.find('.'));
      good = number && (least.empty() || *number >= parse_number<int64_t>(least).value());
      if (!least.empty()) expected += cat(" from ", least, " on");
      break;
    }
    case SettingType::boolean:
      good = parse_boolean(value).has_value();
      break;
    case SettingType::seconds:
      good = parse_number<double>(value).value_or(-1) >= 0;
      break;
    case SettingType::bytes:
      parse_bytes(value);
      break;
  }
  if (!good) {
    throw Error(ErrorCode::invalid_argument,
                cat("invalid value ", info.name, "='", value, "': expected ", expected),
                {.remedy = cat("the default is '", info.default_value, "'; see `tutti info`")});
  }
}

const SettingInfo& require(std::string_view name) {
  const SettingInfo* info = info_of(name);
  if (info == nullptr) {
    std::vector<std::string> names;
    for (const SettingInfo& setting : kSettings) names.emplace_back(setting.name);
    const std::string near = nearest(name, names);
    throw Error(ErrorCode::invalid_argument, cat("unknown setting ", name),
                {.remedy = near.empty() ? "see `tutti info`" : cat("did you mean ", near, "?")});
  }
  return *info;
}

}  // namespace

std::span<const SettingInfo> all_settings() { return kSettings; }

std::string_view name(SettingType type) {
  switch (type) {
    case SettingType::string:
      return "text";
    case SettingType::integer:
      return "a whole number";
    case SettingType::boolean:
      return "0 or 1";
    case SettingType::seconds:
      return "a number of seconds (0 or more, or inf)";
    case SettingType::bytes:
      return "a size in bytes";
  }
  return "?";
}

void Settings::read_environment(std::vector<SettingMistake>* mistakes) {
  std::vector<std::string> names;
  for (const SettingInfo& info : kSettings) {
    values_[std::string(info.name)] = {std::string(info.default_value), "default"};
    names.emplace_back(info.name);
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    if (!variable.starts_with("TUTTI_")) continue;
    const size_t equals = variable.find('=');
    const std::string_view name = variable.substr(0, equals);
    if (std::ranges::find(kOfTools, name) != kOfTools.end()) continue;
    if (info_of(name) == nullptr) {
      const std::string near = nearest(name, names);
      warnings_.push_back(
          cat("unknown setting ", name, " in the environment",
              near.empty() ? "; see `tutti info`" : cat("; did you mean ", near, "?")));
    } else if (equals != std::string_view::npos && equals + 1 < variable.size()) {
      const std::string_view value = variable.substr(equals + 1);  // an empty value counts as unset
      try {
        set(name, value, "environment");
      } catch (const Error& error) {
        if (mistakes == nullptr) throw;
        mistakes->push_back({std::string(name), std::string(value), error.what()});
      }
    }
  }
}

const SettingValue& Settings::find(std::string_view name) const {
  require(name);
  return values_.find(name)->second;
}

SettingValue Settings::value(std::string_view name) const {
  std::lock_guard lock(mutex_);
  return find(name);
}

std::string Settings::get_string(std::string_view name) const { return value(name).text; }
int64_t Settings::get_int(std::string_view name) const {
  return parse_number<int64_t>(value(name).text).value_or(0);
}
bool Settings::get_bool(std::string_view name) const {
  return parse_boolean(value(name).text).value_or(false);
}
std::chrono::nanoseconds Settings::get_duration(std::string_view name) const {
  return duration_of(parse_number<double>(value(name).text).value_or(0));
}
uint64_t Settings::get_bytes(std::string_view name) const { return parse_bytes(value(name).text); }

void Settings::set(std::string_view name, std::string_view value, std::string_view origin) {
  const SettingInfo& info = require(name);
  // All choices are lower case.
  const bool is_choice = info.type == SettingType::string && !info.choices.empty();
  const std::string text = is_choice ? in_lower_case(value) : std::string(value);
  check_value(info, text);
  std::lock_guard lock(mutex_);
  values_.find(name)->second = {text, std::string(origin)};
}

std::string Settings::wire_settings() const {
  std::string text;
  for (const SettingInfo& info : kSettings) {
    if (info.wire) text += cat(info.name, "=", get_string(info.name), ";");
  }
  return text;
}

namespace {

struct Tolerance {
  bool tolerates = false;
  std::vector<SettingMistake> mistakes;
};

Tolerance& tolerance() {
  static Tolerance instance;
  return instance;
}

}  // namespace

Settings& settings() {
  static Settings instance = tolerance().tolerates ? Settings(tolerance().mistakes) : Settings();
  return instance;
}

const std::vector<SettingMistake>& tolerate_setting_mistakes() {
  tolerance().tolerates = true;
  settings();
  return tolerance().mistakes;
}

}  // namespace tutti
