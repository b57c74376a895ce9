#include "collectives/cluster/cluster.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/file_text.h"
#include "base/json.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "collectives/cluster/published.h"
#include "collectives/cost/gpu_costs.h"
#include "topology/units.h"

namespace tutti {

namespace {

constexpr int kFormat = 1;
constexpr int kMostHosts = 1 << 20;
constexpr int kMostGpus = 1 << 12;
// Fraction of the data sheet bandwidth that programs reach: NVLink (gpu_costs.cc) and PCI Express
// (topology/link_speeds.h).
constexpr double kPartOfNvlink = 0.8;
constexpr double kPartOfPcie = 0.76;

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, what, {.remedy = remedy});
}

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); },
      [](unsigned char c) { return std::tolower(c); });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  return text;
}

template <typename Published>
const Published* find_named(std::span<const Published> all, std::string_view name) {
  const auto found =
      std::ranges::find_if(all, [&](const Published& one) { return same_word(one.name, name); });
  return found == all.end() ? nullptr : &*found;
}

template <typename Published>
std::string names_of(std::span<const Published> all) {
  std::string names;
  for (const Published& one : all) names += cat(names.empty() ? "" : ", ", one.name);
  return names;
}

// Parses a count, "8x". Returns nullopt and leaves `text` unchanged if there is none.
std::optional<int> take_count(std::string_view& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits == text.size() || std::tolower(text[digits]) != 'x') return {};
  const auto count = parse_number<int>(text.substr(0, digits));
  if (!count || *count < 1)
    refuse(cat("'", text, "' does not start with a number of at least 1"), "see --help");
  text = trimmed(text.substr(digits + 1));
  return count;
}

constexpr char kLineRemedy[] =
    "write it as \"8xH100 x 128, NVLink 450, IB 8x50\": GPUs of a host, hosts, GB/s of a GPU's "
    "link, cards of a host and GB/s of each, in one direction";

// Parses a line that describes a cluster, from left to right.
class Line {
 public:
  explicit Line(const std::string& text) : text_(text) {
    const std::vector<std::string> parts = split(text, ',');
    read_hosts(trimmed(parts[0]));
    for (size_t i = 1; i < parts.size(); ++i) read_link(trimmed(parts[i]));
  }

  // Returns the cluster. Sets `fixed` to true if the line states the number of hosts.
  Cluster cluster(bool& fixed) {
    cluster_.name = text_;
    cluster_.gpu = gpu_;
    cluster_.launch_us = kLaunchUs;
    cluster_.errors = kPublishedErrors;
    set_inside();
    fixed = has_hosts_;
    return cluster_;
  }

 private:
  void read_hosts(std::string_view part) {
    cluster_.gpus = take_count(part).value_or(1);
    const size_t end = std::min(part.find(' '), part.size());
    gpu_ = part.substr(0, end);
    std::string_view rest = trimmed(part.substr(end));
    if (!rest.empty()) {
      if (std::tolower(rest.front()) != 'x') refuse(cat("'", part, "' is not a GPU"), kLineRemedy);
      rest = trimmed(rest.substr(1));
      const auto hosts = parse_number<int>(rest);
      if (!hosts || *hosts < 1 || *hosts > kMostHosts) {
        refuse(cat("'", rest, "' is not a number of hosts from 1 to ", kMostHosts), kLineRemedy);
      }
      cluster_.hosts = *hosts;
      has_hosts_ = true;
    }
    if (cluster_.gpus > kMostGpus) {
      refuse(cat(cluster_.gpus, " GPUs per host exceed the limit of ", kMostGpus), kLineRemedy);
    }
  }

  void read_link(std::string_view part) {
    if (same_word(part, "SHARP")) {
      cluster_.sums_between = true;
      return;
    }
    const size_t end = std::min(part.find(' '), part.size());
    const std::string_view kind = part.substr(0, end);
    std::string_view rate = trimmed(part.substr(end));
    const int links = take_count(rate).value_or(1);
    if (rate.empty()) refuse(cat("'", part, "' has no bandwidth"), kLineRemedy);
    const double GBps = links * parse_bandwidth(rate);
    const bool is_inside =
        same_word(kind, "NVLink") || same_word(kind, "xGMI") || same_word(kind, "PCIe");
    if (is_inside && inside_GBps_ == 0) {
      inside_kind_ = kind;
      inside_GBps_ = GBps;
      return;
    }
    if (cluster_.between.GBps > 0)
      refuse(cat("'", part, "' is a second network between hosts"), kLineRemedy);
    const PublishedNetwork* const network = find_named(published_networks(), kind);
    if (network == nullptr) {
      refuse(cat("'", kind, "' is not a kind of link"),
             cat("inside a host use NVLink, xGMI or PCIe; between hosts ",
                 names_of(published_networks())));
    }
    cluster_.between = {.GBps = GBps * network->part,
                        .step_us = network->step_us,
                        .ll_GBps = kLlBetweenGBps,
                        .message_us = network->message_us,
                        .all_to_all = network->all_to_all};
  }

  void set_inside() {
    const PublishedGpu* const gpu = find_named(published_gpus(), gpu_);
    if (gpu == nullptr && inside_GBps_ == 0) {
      refuse(cat("the GPU link of '", gpu_, "' is unknown"),
             cat("name it, as in \"8x", gpu_, ", PCIe 32\", or use ", names_of(published_gpus())));
    }
    const bool nvlink = !same_word(inside_kind_, "PCIe");
    double GBps = inside_GBps_ * (nvlink ? kPartOfNvlink : kPartOfPcie);
    double ll_GBps = GBps / 2;
    if (gpu != nullptr && nvlink) {
      const GpuCosts costs = gpu_costs(CostModel::defaults(), gpu->costs);
      const double links = costs.mesh ? cluster_.gpus - 1 : 1;
      const double part = inside_GBps_ == 0 ? 1 : inside_GBps_ / gpu->raw_GBps;
      GBps = 1e-9 / costs.simple.wire * std::max(links, 1.0) * part;
      ll_GBps = gpu->ll_GBps;
      if (costs.multicast > 0 && cluster_.gpus > 2) {
        cluster_.sums_GBps = 1e-9 / costs.multicast * part;
        cluster_.sums_us = kSumsUs;
      }
    }
    cluster_.inside.GBps = GBps;
    cluster_.inside.step_us = steps_inside(nvlink);
    cluster_.inside.ll_GBps = ll_GBps;
    cluster_.inside.message_us = cluster_.inside.step_us[0];
    // A protocol that one kind of link lacks is not used on the other either, because hosts forward
    // their GPUs' messages.
    if (!nvlink) cluster_.between.step_us[static_cast<size_t>(MessageProtocol::ll128)] = 0;
    cluster_.source = gpu == nullptr ? "the line" : "published figures of its parts";
  }

  std::string text_;
  Cluster cluster_;
  std::string gpu_;
  std::string inside_kind_;
  double inside_GBps_ = 0;  // data sheet bandwidth of a GPU's link
  bool has_hosts_ = false;
};

// Splits "p5:32" into the name and the number of hosts.
std::pair<std::string, std::optional<int>> name_and_hosts(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return {text, std::nullopt};
  const auto hosts = parse_number<int>(std::string_view(text).substr(colon + 1));
  if (!hosts) return {text, std::nullopt};
  return {text.substr(0, colon), hosts};
}

void take_ranks(Cluster& cluster, int ranks, bool fixed) {
  if (ranks < 1) refuse(cat(ranks, " ranks cannot be placed on a cluster"), "use at least 1 rank");
  if (ranks <= cluster.gpus) {
    if (cluster.gpus != ranks && ranks <= 2) cluster.sums_GBps = 0;
    cluster.hosts = 1;
    cluster.gpus = ranks;
    return;
  }
  if (ranks % cluster.gpus != 0) {
    refuse(cat(ranks, " ranks do not fill whole hosts of ", cluster.gpus, " GPUs"),
           "use a multiple of the GPUs of a host, or no more ranks than fit on one host");
  }
  if (fixed && ranks > cluster.ranks()) {
    refuse(cat("the cluster has room for ", cluster.ranks(), " ranks, not for ", ranks),
           "use more hosts or fewer --ranks");
  }
  cluster.hosts = ranks / cluster.gpus;
}

void require_network(const Cluster& cluster) {
  if (cluster.hosts == 1 || cluster.between.GBps > 0) return;
  refuse(cat("'", cluster.name, "' has no network between its ", cluster.hosts, " hosts"),
         kLineRemedy);
}

Json json_of(const ClusterLink& link) {
  Json steps = Json::object();
  for (const MessageProtocol protocol : kMessageProtocols) {
    steps[std::string(name(protocol))] = link.step_us[static_cast<size_t>(protocol)];
  }
  return {{"GBps", link.GBps},
          {"step_us", steps},
          {"ll_GBps", link.ll_GBps},
          {"message_us", link.message_us},
          {"all_to_all", link.all_to_all}};
}

double number_in(const Json& json, std::string_view member, double least) {
  const auto value = json.at(member).get<double>();
  if (std::isfinite(value) && value >= least) return value;
  refuse(cat("'", member, "' is ", value, "; it must be at least ", least), "correct the file");
}

ClusterLink link_from(const Json& json) {
  ClusterLink link{.GBps = number_in(json, "GBps", 0),
                   .ll_GBps = number_in(json, "ll_GBps", 0),
                   .message_us = number_in(json, "message_us", 0),
                   .all_to_all = number_in(json, "all_to_all", 0.001)};
  for (const MessageProtocol protocol : kMessageProtocols) {
    link.step_us[static_cast<size_t>(protocol)] = number_in(json.at("step_us"), name(protocol), 0);
  }
  const double slices_us = link.step_us[static_cast<size_t>(MessageProtocol::simple)];
  if (link.GBps > 0 && slices_us == 0) {
    refuse(cat("the Simple protocol has no step time for links of ", link.GBps, " GB/s"),
           "correct the file");
  }
  return link;
}

}  // namespace

std::string_view name(MessageProtocol protocol) {
  constexpr std::array<std::string_view, kMessageProtocols.size()> kNames = {"LL", "LL128",
                                                                             "Simple"};
  return kNames[static_cast<size_t>(protocol)];
}

std::vector<std::string> cluster_names() {
  std::vector<std::string> names;
  for (const PublishedSystem& system : published_systems()) names.emplace_back(system.name);
  return names;
}

bool is_cluster(const std::string& text) {
  if (is_regular_file(text)) {
    const std::string contents = file_text(text, FileKind::cost_model);
    return contents.find("\"gpus_per_host\"") != contents.npos;
  }
  const std::string named = name_and_hosts(text).first;
  if (find_named(published_systems(), named) != nullptr) return true;
  // A near miss of a name counts, so that the error can suggest the name.
  if (!named.empty() && !nearest(named, cluster_names()).empty()) return true;
  std::string_view line = trimmed(text);
  const std::string_view first = line.substr(0, line.find_first_of(" ,"));
  if (find_named(published_gpus(), first) != nullptr) return true;
  const size_t digits = line.find_first_not_of("0123456789");
  if (digits == 0 || digits == line.npos || std::tolower(line[digits]) != 'x') return false;
  line = trimmed(line.substr(digits + 1));
  return !line.empty() && std::isalpha(static_cast<unsigned char>(line.front())) != 0;
}

Cluster load_cluster(const std::string& text, std::optional<int> ranks) {
  Cluster cluster;
  bool fixed = false;
  if (is_regular_file(text)) {
    cluster = parse_cluster_json(file_text(text, FileKind::cost_model));
  } else if (const auto [named, hosts] = name_and_hosts(text);
             const PublishedSystem* const system = find_named(published_systems(), named)) {
    cluster = Line(std::string(system->line)).cluster(fixed);
    cluster.name = system->name;
    cluster.source = cat(system->source, "; published figures of its parts");
    fixed = hosts.has_value();
    if (hosts && (*hosts < 1 || *hosts > kMostHosts)) {
      refuse(cat(*hosts, " is not a number of hosts from 1 to ", kMostHosts), "see --help");
    }
    cluster.hosts = hosts.value_or(1);
  } else if (const std::string near = nearest(named, cluster_names());
             near.empty() && is_cluster(text)) {
    cluster = Line(text).cluster(fixed);
  } else {
    refuse(cat("unknown cluster '", text, "'"),
           cat(near.empty() ? "" : cat("did you mean ", near, "? "), "There are ",
               names_of(published_systems()), "; or ", kLineRemedy));
  }
  if (ranks) take_ranks(cluster, *ranks, fixed);
  require_network(cluster);
  return cluster;
}

std::string network_of(const Cluster& cluster) {
  const auto speed = [](double GBps, const ClusterLink& link, std::string_view of) {
    const double way_us = link.step_us[static_cast<size_t>(MessageProtocol::ll)];
    return cat(of.empty() ? "bandwidth" : of, '=', GBps, "GB/s,", of, of.empty() ? "" : "-",
               "latency=", way_us / 2, "us");  // a path over a switch has two links
  };
  const double card_GBps = cluster.between.GBps / cluster.gpus;
  if (cluster.hosts == 1) {
    return cat("switch:", cluster.gpus, ',', speed(cluster.inside.GBps, cluster.inside, ""));
  }
  if (cluster.gpus == 1) {
    return cat("switch:", cluster.hosts, ',', speed(card_GBps, cluster.between, ""));
  }
  return cat("rail:hosts=", cluster.hosts, ",gpus=", cluster.gpus, ',',
             speed(card_GBps, cluster.between, ""), ',',
             speed(cluster.inside.GBps, cluster.inside, "nvlink"));
}

std::string to_json(const Cluster& cluster) {
  const Json json = {{"format", kFormat},
                     {"name", cluster.name},
                     {"gpu", cluster.gpu},
                     {"source", cluster.source},
                     {"hosts", cluster.hosts},
                     {"gpus_per_host", cluster.gpus},
                     {"launch_us", cluster.launch_us},
                     {"inside", json_of(cluster.inside)},
                     {"between", json_of(cluster.between)},
                     {"sums", {{"GBps", cluster.sums_GBps}, {"us", cluster.sums_us}}},
                     {"sums_between", cluster.sums_between},
                     {"error", to_json(cluster.errors)}};
  return json.dump(2) + "\n";
}

Cluster parse_cluster_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat) {
      refuse(cat("the format is ", json.at("format").dump(), ", not ", kFormat),
             "fit it again with this version: tutti tune --fit");
    }
    Cluster cluster{.name = json.at("name").get<std::string>(),
                    .gpu = json.value("gpu", std::string()),
                    .hosts = json.at("hosts").get<int>(),
                    .gpus = json.at("gpus_per_host").get<int>(),
                    .launch_us = number_in(json, "launch_us", 0),
                    .inside = link_from(json.at("inside")),
                    .between = link_from(json.at("between")),
                    .sums_GBps = number_in(json.at("sums"), "GBps", 0),
                    .sums_us = number_in(json.at("sums"), "us", 0),
                    .sums_between = json.at("sums_between").get<bool>(),
                    .source = json.at("source").get<std::string>()};
    cluster.errors = errors_from(json.at("error"));
    if (cluster.gpus > 1 && cluster.inside.GBps == 0) {
      refuse("the links inside a host have a bandwidth of 0 GB/s", "correct the file");
    }
    if (cluster.hosts < 1 || cluster.hosts > kMostHosts || cluster.gpus < 1 ||
        cluster.gpus > kMostGpus) {
      refuse(cat(cluster.hosts, " hosts of ", cluster.gpus, " GPUs are not a cluster"),
             "correct the file");
    }
    return cluster;
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument,
                cat("the cluster parameters are invalid: ", error.what()));
  }
}

}  // namespace tutti
