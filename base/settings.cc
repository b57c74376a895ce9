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

// Variables that are no settings of the library: bindings and tools read them themselves.
constexpr std::array<std::string_view, 6> kOfTools = {"TUTTI_MPI_ABI",     "TUTTI_PYTHON",
                                                      "TUTTI_TEST_DATA",   "TUTTI_TEST_FULL",
                                                      "TUTTI_TORCH_CACHE", "TUTTI_TORCH_PYTHON"};

constexpr std::array kSettings = {
    SettingInfo{
        "TUTTI_TRANSPORT", SettingType::string, "auto",
        "auto|shm|tcp|ucx|ofi|shm+tcp|shm+ucx|shm+ofi", true, false,
        "how bytes move: auto takes shared memory inside a host, and between hosts UCX or "
        "libfabric (ofi) where all have a network card for it, else TCP; a name alone takes "
        "that between all ranks, behind shm+ between hosts only. UCX's own settings begin "
        "with UCX_, libfabric's with FI_"},
    SettingInfo{"TUTTI_ALGORITHM", SettingType::string, "auto", "", true, false,
                "all-reduce algorithm to use instead of the automatic choice"},
    SettingInfo{"TUTTI_ALGORITHM_FILES", SettingType::string, "", "", true, false,
                "XML files in MSCCL's format, separated by colons, whose algorithms are imported"},
    SettingInfo{"TUTTI_TUNE_FILE", SettingType::string, "", "", false, false,
                "what `tutti tune` measured, as rank 0 reads it; none: defaults; empty: a file in "
                "the user's cache folder"},
    SettingInfo{
        "TUTTI_DETERMINISTIC", SettingType::boolean, "0", "", true, false,
        "canonical algorithms only: the bits of a result depend on the inputs and the number "
        "of ranks, on nothing else"},
    SettingInfo{"TUTTI_GPU_PROTOCOL", SettingType::string, "auto",
                "auto|simple|lines|engines|staged", true, false,
                "how GPUs send messages: kernels in slots behind a flag, or as lines that have "
                "flags of their own; or not, but through the hosts' memory"},
    SettingInfo{
        "TUTTI_PROGRESS_THREAD", SettingType::boolean, "0", "", false, false,
        "a thread per process that moves calls while nobody waits for them, so that they overlap "
        "with computing; it sleeps when there are none"},
    SettingInfo{
        "TUTTI_TIMEOUT", SettingType::seconds, "300", "", false, false,
        "seconds that one collective may take before the communicator is aborted; 0 and inf are "
        "never"},
    SettingInfo{
        "TUTTI_UNEXPECTED_BYTES", SettingType::bytes, "64M", "", false, false,
        "bytes of messages that came before their receives, and that a communicator keeps aside "
        "for a receive of a later one; beyond that senders are held up until a thread waits for "
        "that receive"},
    SettingInfo{
        "TUTTI_LATE_WARNING", SettingType::seconds, "2", "", false, false,
        "a rank for which the others wait longer than so many seconds, in three calls in a row, is "
        "warned of; 0 is never"},
    SettingInfo{"TUTTI_REPORT", SettingType::string, "", "", false, false,
                "directory in which each rank writes, when a communicator is aborted, what it was "
                "doing and its last calls; `tutti top --report DIR` makes one story of it; empty: "
                "none is written"},
    SettingInfo{"TUTTI_INIT_TIMEOUT", SettingType::seconds, "60", "", false, false,
                "seconds in which all ranks must have found each other"},
    SettingInfo{
        "TUTTI_NETWORK_TIMEOUT", SettingType::seconds, "10", "", false, false,
        "seconds for which a host, or the network to it, may be silent before it is taken to "
        "be down; one that is down for less costs time, and nothing else. Where TUTTI_INTERFACE "
        "lists several the others are tried then, for as long again"},
    SettingInfo{
        "TUTTI_SPARES", SettingType::integer, "0", "0..", true, false,
        "ranks of the job, the last ones, that take part when others have died (tutti_grow): "
        "`tutti run --spares` starts them"},
    SettingInfo{"TUTTI_TOKEN", SettingType::string, "", "", false, false,
                "secret shared by the ranks of one job, of at least 128 bits; peers prove that "
                "they know it, and the control channel is encrypted by it"},
    SettingInfo{"TUTTI_TOKEN_FILE", SettingType::string, "", "", false, false,
                "file of mode 0600 that holds the token, used when TUTTI_TOKEN is not set"},
    SettingInfo{"TUTTI_ALLOW_SHORT_TOKEN", SettingType::boolean, "0", "", false, false,
                "takes a token of fewer than 128 bits, which whoever has seen one handshake can "
                "guess"},
    SettingInfo{
        "TUTTI_ENCRYPT", SettingType::string, "auto", "auto|on|off", true, false,
        "whether what goes over TCP is encrypted (TLS 1.3, by the token), besides the "
        "control channel, which is wherever there is a token; auto: not (TUTTI_INTEGRITY finds "
        "accidents)"},
    SettingInfo{"TUTTI_INTEGRITY", SettingType::string, "auto", "auto|on|off", true, false,
                "whether readers verify a 64-bit hash of each message over TCP that is not "
                "encrypted, so that bytes which changed on the way are an error; auto: between "
                "hosts; on: within a host as well"},
    SettingInfo{"TUTTI_RENDEZVOUS", SettingType::string, "", "", false, false,
                "file:/PATH: a shared file through which rank 0 tells its address, instead of "
                "MASTER_ADDR and MASTER_PORT"},
    SettingInfo{
        "TUTTI_INTERFACE", SettingType::string, "", "", false, false,
        "network interface or address to listen on, or several (eth0,eth1), over which the "
        "TCP streams are spread, and each takes over for one that goes down: the first also "
        "carries the control channel; empty: the one that routes to rank 0"},
    SettingInfo{"TUTTI_CONTROL_FANOUT", SettingType::integer, "32", "1..", true, false,
                "children of each rank in the tree of the control channel"},
    SettingInfo{"TUTTI_TCP_STREAMS", SettingType::integer, "0", "0..", true, false,
                "TCP connections between each pair of ranks for collectives; 0: one for each "
                "interface in TUTTI_INTERFACE"},
    SettingInfo{
        "TUTTI_NCCL_GPU", SettingType::string, "", "", false, false,
        "class of GPU (h100 ...) whose costs the tuner plugin for NCCL reckons with; empty: "
        "by the device's name"},
    SettingInfo{"TUTTI_NCCL_PROFILE", SettingType::string, "", "", false, false,
                "where the profiler plugin for NCCL writes its traces: of trace.json each "
                "communicator and rank gets a file beside it; empty: nothing is recorded"},
    SettingInfo{"TUTTI_BIND", SettingType::string, "auto", "auto|none", false, false,
                "whether `tutti run` binds local ranks to cores"},
    SettingInfo{"TUTTI_TOPOLOGY", SettingType::string, "", "", false, false,
                "host to place ranks on in this one's stead, by which they are grouped but not "
                "bound: FILE.xml of lstopo, or synthetic:DESCRIPTION (of hwloc); empty: this one"},
    SettingInfo{
        "TUTTI_RACK", SettingType::string, "", "", false, false,
        "this host's own: the switches above it, the outermost first, as in row2.rack7; by "
        "them hosts are grouped. Empty: what Slurm tells, or a host file (rack=row2.rack7)"},
    SettingInfo{"TUTTI_HOST", SettingType::string, "", "", false, false,
                "what this host is called in messages: `tutti run` sets it to the name that it was "
                "given; empty: the kernel's name of it"},
    SettingInfo{
        "TUTTI_RSH", SettingType::string, "ssh", "", false, false,
        "remote shell of `tutti run` and `tutti doctor --hosts`: called as RSH HOST COMMAND"},
    SettingInfo{"TUTTI_LAUNCH_FANOUT", SettingType::integer, "16", "1..", false, false,
                "the most hosts that `tutti run`, and then each of these hosts, reaches by itself: "
                "what is beyond them is reached through them"},
    SettingInfo{"TUTTI_LOG", SettingType::string, "warning", "error|warning|info|debug", false,
                false, "how much the library says on standard error"},
    SettingInfo{
        "TUTTI_FAULT", SettingType::string, "", "", false, false,
        "faults to inject, for tests, separated by commas: kill|stall|truncate|swap|abort:RANK:N, "
        "at RANK's n-th message (from 1), or delay:RANK:N:MS, which delays it by MS milliseconds; "
        "swap exchanges two words of the next message over TCP"},
    SettingInfo{"TUTTI_MPI_SMALLEST", SettingType::string, "auto", "", true, false,
                "under an MPI program (`tutti mpi`): calls of fewer bytes a block are left to "
                "the MPI library; auto: those of sizes in which it was measured to be faster"},
    SettingInfo{"TUTTI_MPI_REPORT", SettingType::boolean, "0", "", false, false,
                "under an MPI program: rank 0 shows at MPI_Finalize which calls Tutti took, which "
                "it left to the MPI library, and why"},
    SettingInfo{"TUTTI_CPU", SettingType::string, "auto", "auto|baseline|avx2|avx512", false, false,
                "instruction set of the kernels, ours and oneDNN's"},
    SettingInfo{"TUTTI_FIRST_CALL", SettingType::integer, "1", "1..", true, true,
                "number of a communicator's first call, for tests of the last numbers"},
    SettingInfo{"TUTTI_DOMAIN", SettingType::string, "", "", false, true,
                "where on its host the launcher placed this rank: numa:N,cache:N"},
    SettingInfo{"TUTTI_LISTEN_FD", SettingType::integer, "-1", "", false, true,
                "listening socket that rank 0 inherits from the launcher"},
    SettingInfo{"TUTTI_LAUNCHER_FD", SettingType::integer, "-1", "", false, true,
                "pipe on which the launcher tells how ranks ended"},
    SettingInfo{"TUTTI_UNNEEDED_CODE", SettingType::integer, "0", "", false, true,
                "exit code by which the launcher knows spares that were not needed"},
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
    throw Error(ErrorCode::invalid_argument, cat(info.name, "='", value, "' is not ", expected),
                {.remedy = cat("see `tutti info`; the default is '", info.default_value, "'")});
  }
}

const SettingInfo& require(std::string_view name) {
  const SettingInfo* info = info_of(name);
  if (info == nullptr) {
    std::vector<std::string> names;
    for (const SettingInfo& setting : kSettings) names.emplace_back(setting.name);
    const std::string near = nearest(name, names);
    throw Error(ErrorCode::invalid_argument, cat("there is no setting ", name),
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
      return "a number of seconds (0 or more; inf)";
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
          cat("the environment variable ", name, " is no setting of Tutti",
              near.empty() ? "; see `tutti info`" : cat("; did you mean ", near, "?")));
    } else if (equals != std::string_view::npos && equals + 1 < variable.size()) {
      const std::string_view value = variable.substr(equals + 1);  // an empty one is not set
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
  // Words to choose from are all in small letters.
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
