#include "tools/launcher/hosts.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "base/file_text.h"
#include "base/host_name.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "topology/domain.h"
#include "topology/host_list.h"

namespace tutti::tool {

namespace {

constexpr int kMostSlots = 1 << 20;
// Host::slots of a host that was given 0 slots, and so gets no ranks.
constexpr int kTakesNone = -1;

std::optional<int> slots_in(std::string_view text) {
  const auto slots = parse_number<int>(text);
  if (!slots || *slots < 0 || *slots > kMostSlots) return std::nullopt;
  return *slots == 0 ? kTakesNone : *slots;
}

// Parses "b:4". An IPv6 address has more colons, and needs brackets before slots. Throws
// Error(invalid_argument) that names `where`.
Host parse_host(const std::string& word, const std::string& where) {
  const auto refuse = [&](const std::string& what, const std::string& remedy) {
    return Error(ErrorCode::invalid_argument, cat("'", word, "' ", what),
                 {.where = where, .remedy = remedy});
  };
  Host host{.name = word};
  const size_t bracket = word.starts_with('[') ? word.find(']') : std::string::npos;
  const size_t colon = word.find(':', bracket == std::string::npos ? 0 : bracket);
  if (colon != std::string::npos && word.find(':', colon + 1) == std::string::npos) {
    const auto slots = slots_in(std::string_view(word).substr(colon + 1));
    if (!slots) throw refuse("has no number of slots after its colon", "write host:4");
    host = {.name = word.substr(0, colon), .slots = *slots};
  }
  if (bracket != std::string::npos) host.name = word.substr(1, bracket - 1);
  if (host.name.empty() || host.name.starts_with('-')) {
    throw refuse("is not a host name", "use names or addresses, separated by commas in --hosts");
  }
  return host;
}

// A list of hosts that adds up the slots of repeated hosts.
class HostSet {
 public:
  void add(const Host& host) {
    if (host.slots == kTakesNone) {
      counted_ = true;
      return;
    }
    const auto same = std::ranges::find(hosts_, host.name, &Host::name);
    if (host.slots > 0 || same != hosts_.end()) counted_ = true;
    if (same == hosts_.end()) {
      hosts_.push_back({.name = host.name, .slots = std::max(1, host.slots), .rack = host.rack});
    } else {
      if (!host.rack.empty()) same->rack = host.rack;
      same->slots = std::min(kMostSlots, same->slots + std::max(1, host.slots));
    }
  }
  std::vector<Host> take() {
    if (!counted_) {
      for (Host& host : hosts_) host.slots = 0;
    }
    return std::move(hosts_);
  }

 private:
  std::vector<Host> hosts_;
  bool counted_ = false;
};

// Parses "node1 slots=4 max_slots=8".
Host parse_line(const std::string& line, const std::string& where) {
  std::istringstream words(line);
  std::string word;
  words >> word;
  Host host = parse_host(word, where);
  while (words >> word) {
    const std::string name = word.substr(0, word.find('='));
    if (name == "rack" && name.size() < word.size()) {
      try {
        host.rack = parse_rack(word.substr(name.size() + 1));
      } catch (const Error& error) {
        throw Error(error.code(), error.what(), {.where = where});
      }
      continue;
    }
    const auto slots =
        slots_in(std::string_view(word).substr(std::min(name.size() + 1, word.size())));
    if (slots && name == "slots") {
      host.slots = *slots;
    } else if (!slots || (name != "max_slots" && name != "max-slots")) {
      throw Error(
          ErrorCode::invalid_argument, cat("'", word, "' cannot be parsed"),
          {.where = where,
           .remedy = "write `host`, `host slots=4` or `host:4`, optionally followed by rack=NAME"});
    }
  }
  return host;
}

std::vector<Host> counted(const std::vector<std::string>& names) {
  HostSet set;
  for (const std::string& name : names) set.add({.name = name, .slots = 1});
  return set.take();
}

constexpr std::string_view kInteractiveStep = "4294967290";

// Reads SLURM_JOB_NODELIST=n[1-3] and SLURM_TASKS_PER_NODE=4(x3).
std::optional<Allocation> of_slurm(const Environment& environment) {
  const auto nodes = environment("SLURM_JOB_NODELIST");
  if (!nodes || !environment("SLURM_JOB_ID")) return std::nullopt;
  // Processes of a step are already ranks, except in the interactive step, which is salloc's shell.
  const auto step = environment("SLURM_STEP_ID");
  if (step && *step != kInteractiveStep) return std::nullopt;
  Allocation found{.source = "SLURM_JOB_NODELIST",
                   .remote_shell =
                       "srun --overlap --quiet --nodes=1 --ntasks=1 --mpi=none "
                       "--cpu-bind=none --nodelist"};
  const std::vector<std::string> names = expand_host_list(*nodes);
  auto counts = environment("SLURM_TASKS_PER_NODE");
  if (!counts) counts = environment("SLURM_JOB_CPUS_PER_NODE");
  const std::vector<int> slots = counts ? expand_counts(*counts) : std::vector<int>();
  for (size_t i = 0; i < names.size(); ++i) {
    found.hosts.push_back({names[i], i < slots.size() ? std::max(1, slots[i]) : 1});
  }
  found.only_here = names.size() == 1 && environment("SLURMD_NODENAME") == names.front();
  return found;
}

std::optional<Allocation> of_file(const Environment& environment, const std::string& variable) {
  const auto path = environment(variable);
  if (!path) return std::nullopt;
  HostSet set;
  for (const Host& host : read_host_file(*path)) {
    set.add({.name = host.name, .slots = std::max(1, host.slots)});
  }
  return Allocation{.source = variable, .hosts = set.take()};
}

// Reads LSB_MCPU_HOSTS="a 4 b 2", or LSB_HOSTS="a a b", which is not set for very many hosts.
std::optional<Allocation> of_lsf(const Environment& environment) {
  if (auto found = of_file(environment, "LSB_DJOB_HOSTFILE")) return found;
  if (const auto text = environment("LSB_MCPU_HOSTS")) {
    Allocation found{.source = "LSB_MCPU_HOSTS"};
    HostSet set;
    std::istringstream words(*text);
    std::string name;
    std::string slots;
    while (words >> name) {
      if (!(words >> slots) || slots_in(slots).value_or(kTakesNone) == kTakesNone) {
        throw Error(ErrorCode::invalid_argument,
                    cat("LSB_MCPU_HOSTS='", *text, "' is not a list of hosts and slots"),
                    {.remedy = "name the hosts in --hosts or --hostfile"});
      }
      set.add({name, *slots_in(slots)});
    }
    found.hosts = set.take();
    return found;
  }
  if (const auto text = environment("LSB_HOSTS")) {
    return Allocation{.source = "LSB_HOSTS", .hosts = counted(split(*text, ' '))};
  }
  return std::nullopt;
}

[[noreturn]] void throw_too_many(int ranks, int slots) {
  throw Error(ErrorCode::invalid_argument,
              cat(ranks, " ranks exceed the ", slots, " slots of the hosts"),
              {.remedy = "start fewer ranks (-n), or give hosts more slots (host:N)"});
}

}  // namespace

std::vector<Host> parse_hosts(const std::vector<std::string>& words) {
  HostSet set;
  for (const std::string& word : words) set.add(parse_host(word, "--hosts"));
  std::vector<Host> hosts = set.take();
  if (hosts.empty() && !words.empty()) {
    throw Error(ErrorCode::invalid_argument, "all hosts have 0 slots",
                {.where = "--hosts", .remedy = "give at least one host a slot (host:4)"});
  }
  return hosts;
}

std::string to_text(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    const bool is_ipv6 = host.name.find(':') != std::string::npos;
    text += cat(text.empty() ? "" : ",", is_ipv6 ? cat("[", host.name, "]") : host.name);
    if (host.slots > 0) text += cat(":", host.slots);
  }
  return text;
}

std::vector<Host> read_host_file(const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // written by Windows editors
  std::string text = file_text(path, FileKind::hosts);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  std::istringstream file(text);
  HostSet set;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    set.add(parse_line(line, cat(path, ", line ", number)));
  }
  std::vector<Host> hosts = set.take();
  if (hosts.empty()) {
    throw Error(ErrorCode::invalid_argument,
                cat("the host file ", path, " contains no host with slots"),
                {.remedy = "write one host per line: `node1 slots=4`"});
  }
  return hosts;
}

std::optional<Allocation> find_allocation(const Environment& environment) {
  std::optional<Allocation> found = of_slurm(environment);
  if (!found) found = of_lsf(environment);
  if (!found) found = of_file(environment, "PBS_NODEFILE");
  // An allocation of only this host needs no remote shell. Compares host names without domains.
  const auto label = [](const std::string& name) { return name.substr(0, name.find('.')); };
  if (found && found->hosts.size() == 1 && label(found->hosts[0].name) == label(host_name())) {
    found->only_here = true;
  }
  return found;
}

std::vector<std::vector<int>> deal_ranks(int ranks, const std::vector<Host>& hosts, MapBy map) {
  const int count = static_cast<int>(hosts.size());
  const int slots = total_slots(hosts);
  if (slots > 0 && ranks > slots) throw_too_many(ranks, slots);
  if (slots == 0 && ranks < count) {
    throw Error(ErrorCode::invalid_argument,
                cat(count, " hosts are too many for ", ranks, " ranks"),
                {.remedy = "start at least one rank per host (-n), name fewer hosts, or give the "
                           "slots of each (host:N)"});
  }
  const auto room = [&](int i) {
    if (slots > 0) return hosts[static_cast<size_t>(i)].slots;
    return ranks / count + (i < ranks % count ? 1 : 0);
  };
  std::vector<std::vector<int>> dealt(hosts.size());
  for (int rank = 0, host = 0; rank < ranks;) {
    std::vector<int>& here = dealt[static_cast<size_t>(host)];
    const bool full = static_cast<int>(here.size()) >= room(host);
    if (!full) here.push_back(rank++);
    if (full || map == MapBy::node) host = (host + 1) % count;
  }
  return dealt;
}

int total_slots(const std::vector<Host>& hosts) {
  const int64_t sum =
      std::accumulate(hosts.begin(), hosts.end(), int64_t{0},
                      [](int64_t sum, const Host& host) { return sum + host.slots; });
  return static_cast<int>(std::min<int64_t>(sum, std::numeric_limits<int>::max()));
}

}  // namespace tutti::tool
