// tutti info: this build, this host, every setting.
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/reduce.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/version.h"
#include "tools/launcher/address.h"
#include "tools/tutti/commands.h"
#include "topology/host.h"

namespace tutti::tool {

namespace {

#ifdef __clang__
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "gcc " __VERSION__;
#endif

struct TransportState {
  std::string name;
  std::string problem;  // empty: usable
};

// An anonymous shared memory file, as the transport makes them, really mapped and written.
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

// A connection over loopback.
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
  return {{"shm", shm_problem()}, {"tcp", tcp_problem()}};
}

// A secret stays one.
std::string shown(const SettingInfo& info, const SettingValue& value) {
  if (info.name == "TUTTI_TOKEN" && !value.text.empty()) return "(hidden)";
  return value.text;
}

nlohmann::ordered_json describe() {
  nlohmann::ordered_json json = {
      {"version", kVersion},
      {"compiler", kCompiler},
      {"instruction_set", name(selected_instruction_set())},
      {"transports", nlohmann::json::array()},
      {"host", to_json(load_host())},
      {"settings", nlohmann::json::array()},
  };
  for (const TransportState& transport : probe_transports()) {
    json["transports"].push_back({{"name", transport.name},
                                  {"usable", transport.problem.empty()},
                                  {"problem", transport.problem}});
  }
  for (const SettingInfo& info : all_settings()) {
    if (info.internal) continue;
    const SettingValue value = settings().value(info.name);
    json["settings"].push_back({{"name", info.name},
                                {"value", shown(info, value)},
                                {"origin", value.origin},
                                {"default", info.default_value},
                                {"type", name(info.type)},
                                {"choices", info.choices},
                                {"same_on_all_ranks", info.wire},
                                {"meaning", info.meaning}});
  }
  return json;
}

void print(const nlohmann::ordered_json& json) {
  const auto text = [](const nlohmann::ordered_json& value) { return value.get<std::string>(); };
  std::cout << "tutti " << text(json["version"]) << ", " << text(json["compiler"])
            << ", reduction kernels " << text(json["instruction_set"]) << "\n\nTransports\n";
  for (const auto& transport : json["transports"]) {
    std::cout << "  " << text(transport["name"]) << "  "
              << (transport["usable"] ? "usable" : "not usable: " + text(transport["problem"]))
              << '\n';
  }
  std::cout << "\nHost\n";
  for (const std::string& line : split(summary(load_host()), '\n')) {
    std::cout << "  " << line << '\n';
  }
  std::cout << "\nSettings (environment variables)\n";
  for (const auto& setting : json["settings"]) {
    const std::string value = text(setting["value"]);
    const std::string choices = text(setting["choices"]);
    std::cout << "  " << text(setting["name"]) << " = " << (value.empty() ? "(empty)" : value)
              << "  [" << text(setting["origin"]) << "]\n      " << text(setting["meaning"])
              << (choices.empty() ? "" : cat(" (", choices, ")")) << '\n';
  }
}

int info(const std::string& file) {
  const nlohmann::ordered_json json = describe();
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
                       {.where = "--json", .remedy = "name a file in a directory you may write"});
  }
  return 0;
}

}  // namespace

void add_info(CLI::App& app, Action& chosen) {
  const auto file = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("info", "Show this build, this host and every setting with its origin");
  command->add_option("--json", *file, "write it as JSON to a file (- is standard output)")
      ->type_name("FILE");
  command->footer("Example:\n  TUTTI_LOG=info tutti info");
  command->callback([file, &chosen] { chosen = [file] { return info(*file); }; });
}

}  // namespace tutti::tool
