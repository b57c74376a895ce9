// tutti info: shows this build, this host and every setting.
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/file_kind.h"
#include "base/json.h"
#include "base/reduce.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/version.h"
#include "tools/launcher/address.h"
#include "tools/launcher/placement.h"
#include "tools/tutti/commands.h"
#include "topology/host.h"
#include "transport/bootstrap/discovery/job.h"
#include "transport/bootstrap/discovery/job_sources.h"
#include "transport/paths/fabrics.h"
#include "transport/paths/protection.h"

namespace tutti::tool {

namespace {

#ifdef __clang__
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "gcc " __VERSION__;
#endif

struct TransportState {
  std::string name;
  std::string problem;  // reason why the transport cannot be used; empty: no problem
  std::string detail;   // further information
};

// Creates, maps and writes an anonymous shared-memory file as the transport does. Returns the
// problem, if any.
std::string shm_problem() {
  constexpr size_t kBytes = 1 << 16;
  const Fd file(::memfd_create("tutti-info", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), kBytes) != 0) return cat("memfd: ", std::strerror(errno));
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return cat("mmap: ", std::strerror(errno));
  static_cast<volatile char*>(memory)[kBytes - 1] = 1;
  ::munmap(memory, kBytes);
  return "";
}

// Connects over loopback. Returns the problem, if any.
std::string tcp_problem() {
  try {
    const Listener listener = listen_on("127.0.0.1");
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    const Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!client || ::getsockname(listener.socket.get(), raw, &length) != 0 ||
        ::connect(client.get(), raw, length) != 0) {
      return cat("connecting over loopback: ", std::strerror(errno));
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<TransportState> probe_transports() {
  std::vector<TransportState> states = {{"shm", shm_problem(), ""}, {"tcp", tcp_problem(), ""}};
  for (const Fabric& fabric : probe_fabrics()) {
    std::string detail = cat("version ", fabric.version);
    for (const std::string& device : fabric.devices) detail += cat(", ", device);
    states.push_back({fabric.name, fabric.problem, fabric.problem.empty() ? detail : ""});
  }
  return states;
}

// Returns the value to show; secrets are hidden.
std::string shown(const SettingInfo& info, const SettingValue& value) {
  if (info.name == "TUTTI_TOKEN" && !value.text.empty()) return "(hidden)";
  return value.text;
}

// Describes how `tutti run -n N` places ranks on this host. The NUMA node or cache of a rank is
// null if it is unknown, or if the rank's cores span several.
Json describe_ranks(int ranks) {
  const Placement placement = place_ranks(ranks);
  Json list = Json::array();
  const auto index = [](int i) { return i < 0 ? Json() : Json(i); };
  for (size_t r = 0; r < placement.domains.size(); ++r) {
    list.push_back({{"bound_to", placement.pus[r]},
                    {"numa_node", index(placement.domains[r].numa_node)},
                    {"cache", index(placement.domains[r].cache)}});
  }
  // Lists groups from the outermost to the innermost.
  const Layout layout = layout_of(placement);
  Json levels = Json::array();
  for (int level = 0; level < layout.levels(); ++level) {
    Json sizes = Json::array();
    for (int g = 0; g < layout.groups(level); ++g) sizes.push_back(layout.size(level, g));
    levels.push_back(std::move(sizes));
  }
  return {{"group", layout.levels() > 0 ? layout.largest(0) : ranks},
          {"groups", levels},
          {"layout", to_text(layout)},
          {"places", list}};
}

// Returns the rank and job that Communicator::init() would find, or "problem" if it would fail.
Json describe_job() {
  Json json = {
      {"source", nullptr},     {"rank", 0},           {"size", 1},    {"local_rank", nullptr},
      {"local_size", nullptr}, {"meets_at", nullptr}, {"problem", ""}};
  try {
    const std::optional<FoundJob> found = find_job(own_environment);
    if (!found) return json;
    json["source"] = found->source;
    if (found->local_rank) json["local_rank"] = *found->local_rank;
    if (found->local_size) json["local_size"] = *found->local_size;
    const Job job = job_from_environment();
    json["rank"] = job.rank;
    json["size"] = job.size;
    if (job.size > 1) json["meets_at"] = meeting_place(job);
  } catch (const Error& error) {
    json["problem"] = error.what();
  }
  return json;
}

// Describes encryption and integrity of the traffic.
Json describe_traffic() {
  const Protection protection = describe_protection(settings().get_string("TUTTI_ENCRYPT"),
                                                    settings().get_string("TUTTI_INTEGRITY"));
  return {
      {"tcp", protection.data}, {"control", protection.control}, {"fabrics", protection.fabrics}};
}

Json describe(int ranks) {
  Json json = {
      {"version", kVersion},
      {"compiler", kCompiler},
      {"instruction_set", name(selected_instruction_set())},
      {"transports", Json::array()},
      {"traffic", describe_traffic()},
      {"host", to_json(this_host())},
      {"job", describe_job()},
      {"ranks", describe_ranks(ranks)},
      {"settings", Json::array()},
      {"file_limits", Json::array()},
  };
  for (const TransportState& transport : probe_transports()) {
    json["transports"].push_back({{"name", transport.name},
                                  {"usable", transport.problem.empty()},
                                  {"problem", transport.problem},
                                  {"detail", transport.detail}});
  }
  const std::vector<SettingMistake>& mistakes = tolerate_setting_mistakes();
  for (const SettingInfo& info : all_settings()) {
    if (info.internal) continue;
    SettingValue value = settings().value(info.name);
    const auto mistake = std::ranges::find(mistakes, info.name, &SettingMistake::name);
    const bool wrong = mistake != mistakes.end();
    if (wrong) value = {mistake->value, "environment"};
    json["settings"].push_back({{"name", info.name},
                                {"value", shown(info, value)},
                                {"origin", value.origin},
                                {"problem", wrong ? mistake->why : ""},
                                {"default", info.default_value},
                                {"type", name(info.type)},
                                {"choices", info.choices},
                                {"same_on_all_ranks", info.wire},
                                {"meaning", info.meaning}});
  }
  for (const FileLimit& limit : file_limits()) {
    json["file_limits"].push_back({{"kind", limit.name}, {"bytes", limit.most}});
  }
  return json;
}

// Returns a text: "rank 1 of 4, from Slurm; ranks meet at node1:15123".
std::string job_text(const Json& job) {
  if (const auto problem = job["problem"].get<std::string>(); !problem.empty()) return problem;
  if (job["source"].is_null()) return "none (a single rank)";
  std::string text = cat("rank ", job["rank"].get<int>(), " of ", job["size"].get<int>());
  if (!job["local_rank"].is_null()) {
    text += cat(", on its host ", job["local_rank"].get<int>());
    if (!job["local_size"].is_null()) text += cat(" of ", job["local_size"].get<int>());
  }
  text += cat(", from ", job["source"].get<std::string>());
  if (!job["meets_at"].is_null()) {
    text += cat("; ranks meet at ", job["meets_at"].get<std::string>());
  }
  return text;
}

std::string place_text(const Json& place) {
  std::string text;
  if (!place["numa_node"].is_null()) text += cat(", NUMA node ", place["numa_node"].get<int>());
  if (!place["cache"].is_null()) text += cat(", last-level cache ", place["cache"].get<int>());
  return text.empty() ? "anywhere" : text.substr(2);
}

// Prints consecutive ranks in the same place on one line.
void print_ranks(const Json& json) {
  const auto& places = json["places"];
  std::cout << "\nRanks, as `tutti run -n " << places.size() << "` places them\n";
  std::vector<int> alike;
  for (size_t r = 0; r < places.size(); ++r) {
    alike.push_back(static_cast<int>(r));
    const std::string here = place_text(places[r]);
    if (r + 1 < places.size() && place_text(places[r + 1]) == here) continue;
    std::cout << "  " << rank_ranges(alike) << "  " << here << '\n';
    alike.clear();
  }
  const auto groups = json["layout"].get<std::string>();
  std::cout << "  in " << (groups.empty() ? "one group" : groups)
            << ", as hierarchical algorithms see them\n";
}

void print(const Json& json) {
  const auto text = [](const Json& value) { return value.get<std::string>(); };
  std::cout << "tutti " << text(json["version"]) << ", " << text(json["compiler"])
            << ", reduction kernels " << text(json["instruction_set"]) << "\n\nTransports\n";
  for (const auto& transport : json["transports"]) {
    const std::string detail = text(transport["detail"]);
    std::cout << "  " << text(transport["name"]) << "  "
              << (transport["usable"] ? "usable" : "not usable: " + text(transport["problem"]))
              << (detail.empty() ? "" : cat(" (", detail, ")")) << '\n';
  }
  const auto& traffic = json["traffic"];
  std::cout << "\nTraffic between ranks\n  data over TCP: " << text(traffic["tcp"])
            << "\n  data over UCX and libfabric: " << text(traffic["fabrics"])
            << "\n  control channel: " << text(traffic["control"]) << '\n';
  std::cout << "\nHost\n";
  for (const std::string& line : split(summary(this_host()), '\n')) {
    std::cout << "  " << line << '\n';
  }
  std::cout << "\nJob of this process\n  " << job_text(json["job"]) << '\n';
  print_ranks(json["ranks"]);
  std::cout << "\nSettings (environment variables)\n";
  for (const auto& setting : json["settings"]) {
    const std::string value = text(setting["value"]);
    const std::string choices = text(setting["choices"]);
    const std::string problem = text(setting["problem"]);
    std::cout << "  " << text(setting["name"]) << " = " << (value.empty() ? "(empty)" : value)
              << "  [" << text(setting["origin"]) << "]"
              << (problem.empty() ? "" : cat("  WRONG: ", problem)) << "\n      "
              << text(setting["meaning"]) << (choices.empty() ? "" : cat(" (", choices, ")"))
              << '\n';
  }
  std::cout << "\n"
               "Files that are read into memory, and their largest sizes\n";
  for (const auto& limit : json["file_limits"]) {
    std::cout << "  " << text(limit["kind"]) << "  " << human_bytes(limit["bytes"].get<uint64_t>())
              << '\n';
  }
}

int info(int ranks, const std::string& file) {
  const Json json = describe(ranks > 0 ? ranks : std::max(1, this_host().allowed_cores()));
  if (file.empty()) {
    print(json);
    return 0;
  }
  if (file == "-") {
    std::cout << json.dump(2) << '\n';
    return 0;
  }
  std::ofstream out(file);
  out << json.dump(2) << '\n';
  if (!out.flush()) {
    throw system_error(cat("cannot write ", file), errno,
                       {.where = "--json", .remedy = "choose a file in a writable directory"});
  }
  return 0;
}

}  // namespace

void add_info(CommandLine& line) {
  const auto file = std::make_shared<std::string>();
  Command command =
      line.add("info", "show this build, this host, and every setting with its origin");
  const auto ranks = std::make_shared<int>(0);
  command
      .add_option("-n,--ranks", *ranks,
                  "show the placement of this many ranks on this host (default: one per core)")
      .between(1, 1 << 20);
  command
      .add_option("--json", *file, "write the output as JSON to this file (- for standard output)")
      .type_name("FILE");
  command.footer(
      "Examples:\n"
      "  TUTTI_LOG=info tutti info\n"
      "  TUTTI_TOPOLOGY='synthetic:package:2 l3:2 core:4 pu:2' tutti info -n 8");
  command.runs([ranks, file] { return info(*ranks, *file); });
}

}  // namespace tutti::tool
