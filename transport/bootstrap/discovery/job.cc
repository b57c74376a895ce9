#include "transport/bootstrap/discovery/job.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "transport/bootstrap/discovery/job_sources.h"
#include "transport/bootstrap/discovery/pmi.h"
#include "transport/bootstrap/discovery/pmix.h"

namespace tutti {

namespace {

constexpr size_t kLongestToken = 4096;
constexpr size_t kFewestTokenBits = 128;
constexpr size_t kMostRails = 15;  // limited by the number of lanes
constexpr int kTorchrunsPorts = 8;

std::string require(const char* name, const char* given) {
  if (auto value = own_environment(name)) return *value;
  throw Error(ErrorCode::bootstrap, cat(given, " is set, but ", name, " is not"),
              {.remedy = std::string(how_to_start())});
}

// Returns an upper bound on the token's entropy in bits, which a token of random characters has. A
// token that a person chose has less entropy.
size_t most_bits(std::string_view token) {
  const auto all = [&](auto is) { return std::ranges::all_of(token, is); };
  const auto is_hex = [](unsigned char c) { return std::isxdigit(c) != 0; };
  const auto is_base64 = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("+/-_=").find(c) != std::string_view::npos;
  };
  const size_t bits_each = all(is_hex) ? 4 : all(is_base64) ? 6 : 8;
  return token.size() * bits_each;
}

// Throws if the token is short. An attacker with a recorded handshake can test tokens offline, some
// ten million a second per core.
void require_long(std::string_view token) {
  if (most_bits(token) >= kFewestTokenBits || settings().get_bool("TUTTI_ALLOW_SHORT_TOKEN")) {
    return;
  }
  throw Error(ErrorCode::bootstrap,
              cat("the token's ", token.size(), " characters can hold at most ", most_bits(token),
                  " bits; at least ", kFewestTokenBits, " are required"),
              {.cause = "an observer of one handshake can guess a short token",
               .remedy = "create a token by `openssl rand -hex 16`, or let `tutti run` create one "
                         "(it does unless TUTTI_TOKEN or TUTTI_TOKEN_FILE is set); "
                         "TUTTI_ALLOW_SHORT_TOKEN=1 accepts a short one"});
}

std::string rendezvous_from_settings() {
  const std::string text = settings().get_string("TUTTI_RENDEZVOUS");
  constexpr std::string_view kScheme = "file:";
  if (text.empty()) return {};
  if (!text.starts_with(kScheme) || text.size() == kScheme.size()) {
    throw Error(ErrorCode::bootstrap, cat("TUTTI_RENDEZVOUS='", text, "' is not file:/PATH"),
                {.remedy = "give the path of a file on a file system that all ranks share"});
  }
  return text.substr(kScheme.size());
}

// Returns a descriptor inherited from the launcher, and sets close-on-exec; -1 if it is absent (a
// child's child inherits the variable but not the descriptor).
int inherited_fd(const char* setting) {
  const auto fd = static_cast<int>(settings().get_int(setting));
  if (fd < 0 || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return -1;
  return fd;
}

// Returns true if torchrun's own store listens on MASTER_PORT.
bool port_is_torchruns(const Job& job) {
  if (job.launcher_fd >= 0 || job.listen_fd >= 0) return false;
  const auto agent_store = own_environment("TORCHELASTIC_USE_AGENT_STORE");
  return (agent_store && *agent_store == "True") || own_environment("TORCHELASTIC_RUN_ID");
}

// Copies the launcher's local rank and size. Does nothing if the caller's rank or size differs from
// the launcher's, which happens if the launcher has started several jobs.
void find_local_rank(const FoundJob& found, Job& job) {
  if (found.rank != job.rank || (found.size != 0 && found.size != job.size)) return;
  job.local_rank = found.local_rank;
  job.local_size = found.local_size;
}

// Finds rank and size. The caller's values take precedence over the launcher's.
std::optional<FoundJob> find_rank(const KnownJob& known, Job& job) {
  if (known.rank || known.size) {
    job.rank = known.rank.value_or(0);
    job.size = known.size.value_or(1);
    if (job.size < 1 || job.rank < 0 || job.rank >= job.size) {
      throw Error(ErrorCode::bootstrap,
                  cat("rank ", job.rank, " does not exist in a job of ", job.size, " ranks"),
                  {.remedy = "ranks count from 0"});
    }
    try {
      if (const auto own_job = find_job(own_environment)) find_local_rank(*own_job, job);
    } catch (const Error&) {  // the local rank and size are optional
    }
    return std::nullopt;
  }
  std::optional<FoundJob> found = find_job(own_environment);
  if (!found) return found;
  job.source = found->source;
  job.incarnation = found->incarnation;
  job.rank = found->rank;
  job.size = found->size;
  find_local_rank(*found, job);
  if (job.size > 0) return found;
  const auto pmix = std::make_shared<bootstrap::PmixRendezvous>();
  job.size = pmix->job_size();
  job.rendezvous = pmix;
  return found;
}

// Reads a meeting place from the caller's values or the environment. Returns false if neither names
// one.
bool find_named_place(const KnownJob& known, bool required, Job& job) {
  job.rendezvous_file = known.rendezvous_file;
  job.master_address = known.master_address;
  if (!job.rendezvous_file.empty()) return true;
  if (job.master_address.empty()) {
    job.rendezvous_file = rendezvous_from_settings();
    if (!job.rendezvous_file.empty()) return true;
  }
  const bool named = !job.master_address.empty() || own_environment("MASTER_ADDR");
  if (!named && !required) return false;
  const char* given = known.size ? "the number of ranks" : "WORLD_SIZE";
  if (!required) given = "MASTER_ADDR";
  if (job.master_address.empty()) job.master_address = require("MASTER_ADDR", given);
  if (known.master_port) {
    job.master_port = *known.master_port;
    return true;
  }
  const bool next = port_is_torchruns(job);
  const int port =
      job_number("MASTER_PORT", require("MASTER_PORT", given), 1, next ? 65534 : 65535);
  job.master_port = static_cast<uint16_t>(next ? port + 1 : port);
  // The next port is not reserved for this job, so another program may use it. Further ports are
  // tried only if the job has an incarnation, because only then can the ranks distinguish their
  // rank 0 from another job's.
  if (next && !job.incarnation.empty()) job.master_ports = std::min(kTorchrunsPorts, 65535 - port);
  return true;
}

// Sets the address that the source provides. MASTER_ADDR and MASTER_PORT override its two parts.
void find_address(const FoundJob& found, Job& job) {
  job.master_address = own_environment("MASTER_ADDR").value_or(found.address);
  const auto port = own_environment("MASTER_PORT");
  job.master_port =
      port ? static_cast<uint16_t>(job_number("MASTER_PORT", *port, 1, 65535)) : found.port;
}

void find_place(const KnownJob& known, const std::optional<FoundJob>& found, Job& job) {
  if (known.rendezvous) {
    job.rendezvous = known.rendezvous;
    job.token_by_rendezvous = job.token.empty();
    return;
  }
  if (found && !found->address.empty() && known.master_address.empty() &&
      known.rendezvous_file.empty() && settings().get_string("TUTTI_RENDEZVOUS").empty()) {
    return find_address(*found, job);
  }
  const bool has_store = found && found->store != JobStore::none;
  if (find_named_place(known, !has_store, job)) {
    job.rendezvous.reset();
    return;
  }
  if (found->store == JobStore::pmi) {
    job.rendezvous = std::make_shared<bootstrap::PmiRendezvous>();
  } else if (!job.rendezvous) {
    job.rendezvous = std::make_shared<bootstrap::PmixRendezvous>();
  }
  job.token_by_rendezvous = job.token.empty();
}

// Sets the interfaces. The bootstrap uses the first one.
void find_interfaces(const std::string& text, Job& job) {
  std::vector<std::string> names = split(text, ',');
  if (names.size() > kMostRails) {
    throw Error(ErrorCode::bootstrap,
                cat("TUTTI_INTERFACE='", text, "' names ", names.size(), " interfaces"),
                {.remedy = cat("name at most ", kMostRails)});
  }
  if (names.empty()) return;
  job.interface = names.front();
  job.more_interfaces.assign(names.begin() + 1, names.end());
}

std::string find_rack() {
  const std::string named = settings().get_string("TUTTI_RACK");
  if (!named.empty()) return parse_rack(named);
  const auto address = own_environment("SLURM_TOPOLOGY_ADDR");
  const auto pattern = own_environment("SLURM_TOPOLOGY_ADDR_PATTERN");
  return address && pattern ? rack_of_slurm(*address, *pattern) : "";
}

}  // namespace

std::string token_in_file(const std::string& path) {
  const auto refuse = [&](const std::string& why, const std::string& remedy) {
    return Error(ErrorCode::bootstrap, cat("cannot read TUTTI_TOKEN_FILE=", path, ": ", why),
                 {.remedy = remedy});
  };
  // Opened without blocking, because a pipe without a writer must not block the job.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) {
    throw refuse(cat(std::strerror(errno), " (errno ", errno, ")"),
                 "name a file of mode 0600 that holds the job's secret, or set TUTTI_TOKEN");
  }
  if (!S_ISREG(status.st_mode))
    throw refuse("the file is not a regular file", "name a regular file");
  const unsigned mode = status.st_mode & 07777;
  if (mode != 0600) {
    std::string octal = "0000";
    for (unsigned i = 0, rest = mode; i < 4; ++i, rest >>= 3) octal[3 - i] = "01234567"[rest & 7];
    throw Error(
        ErrorCode::bootstrap, cat("TUTTI_TOKEN_FILE=", path, " has mode ", octal, ", not 0600"),
        {.cause = "other users could read the job's secret", .remedy = cat("chmod 600 ", path)});
  }
  std::string token(kLongestToken + 1, '\0');
  const ssize_t got = ::read(file.get(), token.data(), token.size());
  if (got < 0) throw refuse(cat(std::strerror(errno), " (errno ", errno, ")"), "");
  token.resize(static_cast<size_t>(got));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  const std::string write_one =
      cat("write a one-line secret into it, for example by `openssl rand -hex "
          "16 > ",
          path, "`");
  if (token.empty()) throw refuse("the file is empty", write_one);
  if (token.size() > kLongestToken || token.find('\0') != std::string::npos) {
    throw refuse(cat("the file has more than ", kLongestToken, " bytes, or a byte of value 0"),
                 write_one);
  }
  return token;
}

std::string job_token() {
  std::string token = settings().get_string("TUTTI_TOKEN");
  const std::string path = settings().get_string("TUTTI_TOKEN_FILE");
  if (token.empty() && !path.empty()) token = token_in_file(path);
  if (!token.empty()) require_long(token);
  return token;
}

std::string meeting_place(const Job& job) {
  if (job.rendezvous) return job.rendezvous->name();
  if (!job.rendezvous_file.empty()) return cat("the rendezvous file ", job.rendezvous_file);
  const std::string first = cat(job.master_address, ":", job.master_port);
  return job.master_ports == 1 ? first : cat(first, "-", job.master_port + job.master_ports - 1);
}

Job job_from_environment(const KnownJob& known) {
  Job job;
  const std::optional<FoundJob> found = find_rank(known, job);
  const Settings& all = settings();
  job.token = job_token();
  job.init_timeout = all.get_duration("TUTTI_INIT_TIMEOUT");
  job.fanout =
      job_number("TUTTI_CONTROL_FANOUT", all.get_string("TUTTI_CONTROL_FANOUT"), 1, 1 << 24);
  job.spares = job_number("TUTTI_SPARES", all.get_string("TUTTI_SPARES"), 0, job.size - 1);
  job.unneeded_spares_exit = true;
  job.wire_settings = all.wire_settings();
  find_interfaces(all.get_string("TUTTI_INTERFACE"), job);
  job.domain = parse_domain(all.get_string("TUTTI_DOMAIN"));
  job.rack = find_rack();
  if (!known.rank) {  // otherwise the launcher's ranks may differ from these
    job.launcher_fd = inherited_fd("TUTTI_LAUNCHER_FD");
    if (job.rank == 0) job.listen_fd = inherited_fd("TUTTI_LISTEN_FD");
  }
  if (job.size > 1) find_place(known, found, job);
  job.encrypts_data = all.get_string("TUTTI_ENCRYPT") == "on";
  if (job.encrypts_data && job.size > 1 && job.token.empty() && !job.token_by_rendezvous) {
    throw Error(
        ErrorCode::bootstrap, "TUTTI_ENCRYPT=on requires a token, but none is set",
        {.cause = "the encryption keys are derived from the token",
         .remedy = "set TUTTI_TOKEN to the same secret on all ranks (for example from `openssl "
                   "rand -hex 16`), or start them by `tutti run`, which creates one"});
  }
  return job;
}

}  // namespace tutti
