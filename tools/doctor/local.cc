#include "tools/doctor/local.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "base/file_text.h"
#include "base/host_memory.h"
#include "base/host_name.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/version.h"
#include "collectives/cost/cost_model.h"
#include "topology/host.h"
#include "transport/bootstrap/discovery/job.h"
#include "transport/bootstrap/discovery/meeting.h"
#include "transport/bootstrap/handshake/socket.h"
#include "transport/message.h"
#include "transport/paths/fabrics.h"

namespace tutti::tool {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kOldJobAnswersWithin{1000};

std::string hex(const unsigned char* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

// Returns a hash of the running program, because two builds may have the same version.
std::string build_of_this_program() {
  const std::unique_ptr<EVP_MD_CTX, decltype(&::EVP_MD_CTX_free)> context(::EVP_MD_CTX_new(),
                                                                          &::EVP_MD_CTX_free);
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::array<char, 1 << 16> block;
  if (!file || ::EVP_DigestInit_ex(context.get(), ::EVP_sha256(), nullptr) != 1) return "";
  while (file.read(block.data(), block.size()) || file.gcount() > 0) {
    ::EVP_DigestUpdate(context.get(), block.data(), static_cast<size_t>(file.gcount()));
  }
  std::array<unsigned char, 32> digest;
  if (::EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) != 1) return "";
  return hex(digest.data(), digest.size());
}

uint64_t limit_of(rlim_t value) { return value == RLIM_INFINITY ? HostFacts::kUnlimited : value; }

void look_at_limits(HostFacts& facts) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.memlock = limit_of(limit.rlim_cur);
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.open_files = limit_of(limit.rlim_max);
  facts.memory = host_memory();
  facts.memory_available = available_host_memory();
  facts.container_memory = container_memory().value_or(HostFacts::kUnlimited);
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    facts.shm_size = uint64_t{shm.f_blocks} * shm.f_frsize;
    facts.shm_free = uint64_t{shm.f_bavail} * shm.f_frsize;
  }
  std::error_code none;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", none)) {
    facts.rdma_devices.push_back(device.path().filename());
  }
  // Examines the real machine; TUTTI_TOPOLOGY is ignored here.
  const HostTopology host = load_host();
  facts.cores = std::max(1, host.allowed_cores());
  facts.all_cores = std::max<int>(1, static_cast<int>(host.cores.size()));
}

std::vector<Interface> look_at_interfaces() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::vector<Interface> found;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    auto known = std::ranges::find(found, entry->ifa_name, &Interface::name);
    if (known == found.end()) {
      ifreq request{};
      std::strncpy(request.ifr_name, entry->ifa_name, sizeof request.ifr_name - 1);
      Interface one{.name = entry->ifa_name,
                    .mtu = ::ioctl(any.get(), SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0,
                    .up = (entry->ifa_flags & IFF_UP) != 0,
                    .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0};
      std::ifstream speed(cat("/sys/class/net/", one.name, "/speed"));
      if (!(speed >> one.megabits) || one.megabits < 0) one.megabits = 0;
      known = found.insert(found.end(), std::move(one));
    }
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    bootstrap::SocketAddress address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, entry->ifa_addr, address.length);
    known->addresses.push_back(address.host());
  }
  return found;
}

// Examines an existing rendezvous file, which belongs to another job or is stale.
void look_at_old_rendezvous(RendezvousFacts& facts, const std::string& value) {
  facts.address = value;
  try {
    const bootstrap::SocketAddress address = bootstrap::parse_rank_zero(value);
    facts.address = address.text();
    Fd socket;
    const Deadline deadline = Deadline::after(kOldJobAnswersWithin);
    facts.answers = bootstrap::try_connect(address, deadline, socket) == 0;
  } catch (const Error& error) {
    facts.problem = error.what();
  }
}

RendezvousFacts look_at_rendezvous() {
  constexpr std::string_view kScheme = "file:";
  RendezvousFacts facts;
  const std::string setting = settings().get_string("TUTTI_RENDEZVOUS");
  if (setting.empty()) return facts;
  facts.file = setting;
  if (!setting.starts_with(kScheme) || setting.size() == kScheme.size()) {
    facts.problem = cat("TUTTI_RENDEZVOUS='", setting, "' does not have the form file:/PATH");
    return facts;
  }
  facts.file = setting.substr(kScheme.size());
  const fs::path folder = fs::absolute(facts.file).parent_path();
  if (::access(folder.c_str(), R_OK | W_OK | X_OK) != 0) {
    facts.problem = cat("the folder ", folder.string(), " cannot be used: ", std::strerror(errno));
    return facts;
  }
  const auto value = bootstrap::FileRendezvous(facts.file).get(bootstrap::kRankZeroKey);
  if (value) look_at_old_rendezvous(facts, *value);
  return facts;
}

void look_at_settings(HostFacts& facts) {
  facts.setting_warnings = settings().warnings();
  for (const SettingInfo& info : all_settings()) {
    // Only the token's fingerprint is reported.
    if (info.internal || info.name == "TUTTI_TOKEN") continue;
    const SettingValue value = settings().value(info.name);
    if (value.text != info.default_value) facts.settings[std::string(info.name)] = value.text;
  }
}

// Checks the files that two settings name.
void look_at_files(HostFacts& facts) {
  const std::string reports = settings().get_string("TUTTI_REPORT");
  std::error_code none;
  if (!reports.empty() && !fs::is_directory(reports, none)) {
    facts.setting_warnings.push_back(
        cat("TUTTI_REPORT=", reports, ": the directory for reports does not exist"));
  } else if (!reports.empty() && ::access(reports.c_str(), W_OK | X_OK) != 0) {
    facts.setting_warnings.push_back(
        cat("TUTTI_REPORT=", reports, ": reports cannot be written there: ", std::strerror(errno)));
  }
  const std::string tuned = settings().get_string("TUTTI_TUNE_FILE");
  if (tuned.empty() || tuned == "none") return;
  try {
    parse_cost_model(file_text(tuned, FileKind::cost_model));
  } catch (const Error& error) {
    facts.tune_problem = cat("TUTTI_TUNE_FILE=", tuned, ": ", error.what());
  }
}

// Runs one examination and catches its errors, so that the others run nevertheless.
template <typename Look>
void try_to(HostFacts& facts, Look look) {
  try {
    look();
  } catch (const std::exception& error) {
    const std::string what = error.what();
    // Every function that reads settings throws the same error for a value of the wrong type. The
    // error is reported once.
    if (std::ranges::find(facts.setting_problems, what) == facts.setting_problems.end()) {
      facts.setting_problems.push_back(what);
    }
  }
}

void take_over(const std::map<std::string, std::string>& environment) {
  const bool has_token =
      std::getenv("TUTTI_TOKEN") != nullptr || std::getenv("TUTTI_TOKEN_FILE") != nullptr;
  for (const auto& [name, value] : environment) {
    if (name == "TUTTI_TOKEN_FILE" && has_token) continue;
    ::setenv(name.c_str(), value.c_str(), 1);
  }
}

}  // namespace

std::map<std::string, std::string> settings_to_hand_on() {
  std::map<std::string, std::string> result;
  for (const SettingInfo& info : all_settings()) {
    const SettingValue value = settings().value(info.name);
    if (info.internal || info.name == "TUTTI_TOKEN" || value.origin != "environment") continue;
    result[std::string(info.name)] = value.text;
  }
  return result;
}

TokenFacts look_at_token(std::string_view nonce) {
  TokenFacts facts;
  if (!settings().get_string("TUTTI_TOKEN").empty()) {
    facts.source = "TUTTI_TOKEN";
  } else if (const std::string file = settings().get_string("TUTTI_TOKEN_FILE"); !file.empty()) {
    facts.source = "TUTTI_TOKEN_FILE=" + file;
  } else {
    return facts;
  }
  try {
    const std::string token = job_token();
    // The label separates this HMAC from every other use of the token.
    const std::string text = cat("tutti doctor ", nonce);
    std::array<unsigned char, 32> digest;
    unsigned int length = 0;
    const auto* data = reinterpret_cast<const unsigned char*>(text.data());
    if (::HMAC(::EVP_sha256(), token.data(), static_cast<int>(token.size()), data, text.size(),
               digest.data(), &length) == nullptr) {
      throw Error(ErrorCode::internal, "HMAC-SHA256 failed");
    }
    facts.fingerprint = hex(digest.data(), digest.size());
  } catch (const Error& error) {
    facts.problem = error.what();
  }
  return facts;
}

HostFacts look_at_this_host(const Question& question) {
  take_over(question.environment);
  HostFacts facts;
  facts.name = question.name;
  facts.ranks = question.ranks;
  facts.hostname = host_name();
  if (facts.name.empty()) facts.name = facts.hostname;
  facts.version = kVersion;
  facts.wire_version = kWireVersion;
  facts.build = build_of_this_program();
  utsname system{};
  if (::uname(&system) == 0) {
    facts.kernel = system.release;
    facts.processor = system.machine;
  }
  facts.interfaces = look_at_interfaces();
  try_to(facts, [&] { look_at_limits(facts); });
  try_to(facts, [&] { look_at_settings(facts); });
  try_to(facts, [&] { look_at_files(facts); });
  try_to(facts, [&] { facts.token = look_at_token(question.nonce); });
  try_to(facts, [&] { facts.rendezvous = look_at_rendezvous(); });
  try_to(facts, [&] {
    for (const Fabric& fabric : probe_fabrics()) {
      facts.fabrics.push_back({fabric.name, fabric.problem, fabric.version, fabric.devices});
    }
  });
  return facts;
}

}  // namespace tutti::tool
