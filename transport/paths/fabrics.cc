#include "transport/paths/fabrics.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "transport/bootstrap/handshake/socket.h"
#include "transport/ofi/ofi_driver.h"
#include "transport/ofi/probe.h"
#include "transport/ucx/probe.h"
#include "transport/ucx/ucx_driver.h"

namespace tutti {

namespace {

namespace fs = std::filesystem;

// Returns the address of this host on the route to rank 0; empty if unknown. libfabric then uses
// the first interface that is not loopback.
std::string own_address(const Job& job) {
  if (!job.interface.empty()) {
    return bootstrap::resolve_interface(job.interface, 0).front().host();
  }
  if (job.master_address.empty()) return "";
  const bootstrap::SocketAddress master =
      bootstrap::resolve_master(job.master_address, job.master_port, "").front();
  if (master.is_loopback()) return master.host();
  // The connect sends no datagram: it only selects the route.
  const Fd probe(::socket(master.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || ::connect(probe.get(), master.get(), master.length) != 0) return "";
  return bootstrap::local_address(probe.get()).host();
}

// Returns this rank's location. If the launcher reports no local rank, the world rank replaces it.
ofi::Near place_of(const Job& job) {
  return {.address = own_address(job), .local_rank = job.local_rank.value_or(job.rank)};
}

fabric::Rma rma() {
  const std::string chosen = settings().get_string("TUTTI_RMA");
  if (chosen == "auto") return fabric::Rma::automatic;
  return chosen == "on" ? fabric::Rma::on : fabric::Rma::off;
}

std::unique_ptr<fabric::Driver> open_driver(const std::string& name, const Job& job) {
  if (name == "ucx") return std::make_unique<ucx::UcxDriver>(rma());
  return std::make_unique<ofi::OfiDriver>(place_of(job), "", rma());
}

// Opens a driver like open_driver(), but excludes providers over sockets, which are slower than
// Tutti's own TCP.
std::unique_ptr<fabric::Driver> open_card(const std::string& name, const Job& job) {
  if (name == "ucx") return open_driver(name, job);
  auto driver = std::make_unique<ofi::OfiDriver>(place_of(job), "", rma());
  if (!driver->by_sockets()) return driver;
  throw Error(ErrorCode::unsupported, "libfabric has no provider for the network card");
}

std::vector<std::string> names(const std::vector<PathClass>& fabrics) {
  std::vector<std::string> names;
  for (const PathClass fabric : fabrics) names.emplace_back(name(fabric));
  return names;
}

std::string first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string number;
  std::string word;
  file >> number >> word;  // the line is like "4: ACTIVE"
  return word;
}

bool has_active_port(const fs::path& card) {
  std::error_code problem;
  for (const fs::directory_entry& port : fs::directory_iterator(card / "ports", problem)) {
    if (first_word(port.path() / "state") == "ACTIVE") return true;
  }
  return false;
}

}  // namespace

Transports parse_transports(const std::string& text) {
  if (text == "shm") return {.only_shm = true, .fabric = "tcp"};
  const bool with_shm = text.starts_with("shm+");
  const std::string fabric = with_shm ? text.substr(4) : text;
  if (fabric == "tcp" || fabric == "ucx" || fabric == "ofi") {
    return {.near_by_shm = with_shm, .fabric = fabric};
  }
  return {.fabric = "auto"};  // the settings check the names
}

std::vector<std::string> fabric_candidates(const std::string& sys) {
  std::error_code problem;
  bool verbs = false;
  bool only_libfabric = fs::exists(fs::path(sys) / "class/cxi", problem);
  for (const fs::directory_entry& card :
       fs::directory_iterator(fs::path(sys) / "class/infiniband", problem)) {
    const bool is_software = !fs::exists(card.path() / "device", problem);
    if (is_software || !has_active_port(card.path())) continue;
    const bool is_efa = card.path().filename().string().starts_with("efa");
    (is_efa ? only_libfabric : verbs) = true;
  }
  if (verbs) return {"ucx", "ofi"};
  if (only_libfabric) return {"ofi"};
  return {};
}

OpenedFabric open_fabric(const std::string& fabric, const Job& job,
                         const MeasuredFabrics& measured) {
  if (fabric == "tcp" || job.size == 1) return {};
  if (job.encrypts_data && fabric != "auto") {
    throw Error(ErrorCode::unsupported, cat(fabric, " does not support encryption"),
                {.cause = "TUTTI_ENCRYPT=on is combined with a TUTTI_TRANSPORT that names a fabric",
                 .remedy = "set TUTTI_TRANSPORT=tcp or shm+tcp, or unset TUTTI_ENCRYPT"});
  }
  if (fabric != "auto") return {fabric, open_driver(fabric, job)};
  // No fabric is needed if all ranks are on one host, and no fabric can encrypt data.
  if (job.local_size == job.size || job.encrypts_data) return {};
  std::string problems;
  for (const std::string& name : measured ? names(*measured) : fabric_candidates()) {
    try {
      return {name, measured ? open_driver(name, job) : open_card(name, job)};
    } catch (const Error& error) {
      problems += cat(problems.empty() ? "" : "; ", error.what());
    }
  }
  if (!problems.empty()) {
    log(LogLevel::warning, cat("rank ", job.rank,
                               measured ? " cannot open the fabric that measured faster"
                                        : " has an RDMA network card, but no library "
                                          "for it",
                               ", so TCP is used between hosts: ", problems));
  }
  return {};
}

namespace {

Fabric probe(const std::string& name, std::string (*version)(),
             std::vector<std::string> (*devices)()) {
  Fabric fabric{.name = name};
  try {
    fabric.version = version();
    fabric.devices = devices();
  } catch (const Error& error) {
    fabric.problem = error.what();
  }
  return fabric;
}

}  // namespace

std::vector<Fabric> probe_fabrics() {
  return {probe("ucx", ucx::version, ucx::devices), probe("ofi", ofi::version, ofi::devices)};
}

}  // namespace tutti
