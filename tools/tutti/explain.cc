// tutti explain: which algorithm a call takes, what each one would take, and why.
#include "tools/tutti/explain.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda/device.h"
#include "base/error.h"
#include "base/json.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/cost/imagined_machine.h"
#include "collectives/cost/planner.h"
#include "collectives/interchange/msccl_import.h"
#include "collectives/program/bus_factor.h"
#include "tools/launcher/placement.h"
#include "tools/tutti/clusters.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/groups.h"
#include "tools/tutti/named.h"
#include "topology/layout.h"
#include "transport/path_class.h"
#include "transport/paths/fabrics.h"

namespace tutti::tool {

namespace {

struct ExplainOptions {
  std::string collective;
  int ranks = 2;
  std::string group;  // empty: all on one host
  int root = 0;
  std::string bytes = "1M";
  std::string dtype = "f32";
  std::string transport = "auto";
  bool deterministic = false;
  std::string gpu;
  std::string cluster;
  std::string buffers = "user";
  std::string json;
  bool all_sizes = false;  // of a GPU: when none is given
};

Wanted wanted_of(const ExplainOptions& options) {
  const Collective collective = collective_named(options.collective);
  const DType dtype = dtype_named(options.dtype);
  const bool deterministic = options.deterministic || settings().get_bool("TUTTI_DETERMINISTIC");
  if (options.root < 0 || options.root >= options.ranks) {
    throw Error(ErrorCode::invalid_argument,
                cat("--root ", options.root, " is not in 0 to ", options.ranks - 1));
  }
  return {.collective = collective,
          .root = options.root,
          .bytes = block_bytes(collective, options.ranks, parse_bytes(options.bytes)),
          .dtype = dtype,
          .at_least = deterministic && reduces(collective) ? Grade::canonical : Grade::same_bits};
}

// On hosts of these groups; the ranks of a single host are placed as on this one.
std::vector<Place> places_of(const ExplainOptions& options) {
  std::vector<Place> places;
  if (options.group.empty()) {
    for (const Domain& domain : place_ranks(options.ranks).domains) places.push_back({"", domain});
    return places;
  }
  const std::vector<int> groups = parse_groups(options.group, options.ranks);
  for (size_t host = 0; host < groups.size(); ++host) {
    places.insert(places.end(), static_cast<size_t>(groups[host]), {std::to_string(host), {}});
  }
  return places;
}

// Between hosts, where `auto` takes what was measured to be quickest, or what this host has a card
// for.
PathClass fabric_of(const Transports& transports, const CostModel& model) {
  if (transports.fabric != "auto") return parse_path_class(transports.fabric).value();
  if (const auto measured = fabrics_quicker_than_tcp(model)) {
    return measured->empty() ? PathClass::tcp : measured->front();
  }
  const std::vector<std::string> cards = fabric_candidates();
  return cards.empty() ? PathClass::tcp : parse_path_class(cards.front()).value();
}

// "tcp", "auto: shm", "auto: shm+ucx"
std::string describe(const std::string& asked, PathClass fabric, const tutti::Hosts& hosts) {
  if (asked != "auto") return asked;
  return cat("auto: shm", hosts.count() > 1 ? cat('+', name(fabric)) : "");
}

struct Question {
  Collective collective;
  int ranks;
  uint64_t bytes;  // as `tutti bench` counts them
};

// What keeps a call from being quicker: the card of a host, its cores, or waiting for each other.
std::string bound_of(const Prediction& p, const tutti::Hosts& hosts) {
  constexpr double kMost = 0.6;  // of the time
  const auto part = [&](double busy) {
    return cat("busy for ", std::lround(100 * busy / p.seconds), "% of the time");
  };
  if (hosts.count() > 1 && p.wire > kMost * p.seconds && p.wire >= p.cores) {
    return cat("what ", p.enters ? "enters" : "leaves", " host ", p.host,
               " by its network card, which is ", part(p.wire));
  }
  if (p.cores > kMost * p.seconds) return cat("a core, which is ", part(p.cores));
  return "latency: ranks wait for messages most of the time";
}

// In GB/s, as `tutti bench` computes it. Barriers move nothing.
double busbw(const Question& question, double seconds) {
  const double algbw = static_cast<double>(question.bytes) / seconds / 1e9;
  return algbw * bus_factor(question.collective, question.ranks);
}

Json to_json(const Candidate& candidate, const Question& question) {
  Json row = {{"algorithm", candidate.algorithm->name},
              {"grade", name(candidate.algorithm->grade)}};
  if (!candidate.excluded.empty()) {
    row["excluded"] = candidate.excluded;
    return row;
  }
  const Prediction& p = candidate.prediction;
  row["time_us"] = p.seconds * 1e6;
  row["busbw_GBps"] = busbw(question, p.seconds);
  row["rough"] = p.rough;
  if (p.rough) return row;
  row["messages_us"] = p.messages * 1e6;
  row["bytes_us"] = p.moving * 1e6;
  row["reducing_us"] = p.reducing * 1e6;
  return row;
}

// What is too long to be walked.
void print_rough(const std::string& name, const std::string& grade, double seconds, double busbw,
                 bool chosen) {
  std::printf("%s %-26s %-10s %10.2f us  estimated from the steps of one rank  busbw %.3f GB/s\n",
              chosen ? "  >" : "   ", name.c_str(), grade.c_str(), seconds * 1e6, busbw);
}

void print(const Candidate& candidate, const Question& question, bool chosen) {
  const Prediction& p = candidate.prediction;
  const std::string name(candidate.algorithm->name);
  const std::string grade(tutti::name(candidate.algorithm->grade));
  if (!candidate.excluded.empty()) {
    std::printf("    %-26s %-10s out: %s\n", name.c_str(), grade.c_str(),
                candidate.excluded.c_str());
    return;
  }
  const double bandwidth = busbw(question, p.seconds);
  if (p.rough) return print_rough(name, grade, p.seconds, bandwidth, chosen);
  const double busy = p.messages + p.moving + p.reducing;
  std::printf(
      "%s %-26s %-10s %10.2f us  = messages %8.2f  bytes %9.2f  reducing %9.2f  waiting %9.2f  "
      "busbw %.3f GB/s\n",
      chosen ? "  >" : "   ", name.c_str(), grade.c_str(), p.seconds * 1e6, p.messages * 1e6,
      p.moving * 1e6, p.reducing * 1e6, std::max(0.0, p.seconds - busy) * 1e6, bandwidth);
}

int run(const ExplainOptions& options) {
  std::ofstream json_file = open_for_writing(options.json, "--json");
  const std::vector<Place> places = places_of(options);
  const tutti::Hosts hosts = tutti::Hosts::of(places);
  AlgorithmFiles files = load_algorithm_files();
  const Wanted wanted = wanted_of(options);
  const Shape shape{.ranks = options.ranks, .layout = Layout::of(places)};
  const Transports transports = parse_transports(options.transport);
  const CostModel model = load_cost_model();
  const PathClass fabric = fabric_of(transports, model);
  Planner planner(shape, imagined_machine(hosts, transports.near_by_shm, fabric, model),
                  std::move(files.algorithms));
  const Algorithm& chosen = planner.choose(wanted);
  const std::string file = cost_model_file();
  const std::string groups = to_text(shape.layout);
  const Question question = {wanted.collective, options.ranks, parse_bytes(options.bytes)};
  const std::string collective(name(wanted.collective));
  std::printf("%s of %s, %d ranks, %s on a host with %d cores%s, %s\n", collective.c_str(),
              options.bytes.c_str(), options.ranks,
              options.group.empty() ? std::to_string(options.ranks).c_str() : options.group.c_str(),
              planner.machine().model.cores, groups.empty() ? "" : cat(", in ", groups).c_str(),
              describe(options.transport, fabric, hosts).c_str());
  std::printf("costs: %s\n\n", !file.empty() && std::filesystem::exists(file)
                                   ? file.c_str()
                                   : "defaults (`tutti tune` measures this machine's)");
  Json document = {{"collective", collective},
                   {"ranks", options.ranks},
                   {"bytes", question.bytes},
                   {"dtype", name(wanted.dtype)},
                   {"transport", describe(options.transport, fabric, hosts)},
                   {"chosen", chosen.name},
                   {"algorithms", Json::array()}};
  std::string bound;
  for (const Candidate& candidate : planner.explain(wanted)) {
    const bool is_chosen = candidate.algorithm == &chosen;
    print(candidate, question, is_chosen);
    document["algorithms"].push_back(to_json(candidate, question));
    if (is_chosen && !candidate.prediction.rough) bound = bound_of(candidate.prediction, hosts);
  }
  std::printf("\nThe parts are those of the busiest rank; what is left of the time is waiting.\n");
  if (!bound.empty()) std::printf("What bounds %s: %s.\n", chosen.name.c_str(), bound.c_str());
  if (json_file.is_open()) json_file << document.dump(2) << '\n';
  return 0;
}

// The powers of two from 8 bytes to 1 GiB.
std::vector<uint64_t> ladder() {
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = 8; bytes <= uint64_t{1} << 30; bytes *= 2) sizes.push_back(bytes);
  return sizes;
}

tutti::Reach reach_of(const std::string& buffers) {
  if (buffers == "registered") return tutti::Reach::windows;
  return buffers == "library" ? tutti::Reach::multicast : tutti::Reach::slots;
}

// Of the first GPU here, or the one that is named.
std::string class_of_gpu(const std::string& named) {
  return named == "auto" ? std::string(gpu_class_for(cuda::device_info(0).name)) : named;
}

int run_gpu(const ExplainOptions& options) {
  AlgorithmFiles files = load_algorithm_files();
  GpuQuestion question{.gpu = class_of_gpu(options.gpu),
                       .ranks = options.ranks,
                       .wanted = wanted_of(options),
                       .sizes = {parse_bytes(options.bytes)},
                       .more = std::move(files.algorithms),
                       .reach = reach_of(options.buffers)};
  if (options.all_sizes) question.sizes = ladder();
  if (question.wanted.collective == Collective::barrier) question.sizes = {0};
  return explain_gpu(question);
}

void refuse_what_is_not_of_gpus(const Command& command) {
  for (const char* option : {"--transport", "--group", "--json"}) {
    if (command.count(option) > 0) throw UsageError(cat("--gpu excludes ", option));
  }
}

int run_cluster(const Command& command, const ExplainOptions& options) {
  for (const char* option :
       {"--transport", "--group", "--gpu", "--buffers", "--root", "--dtype", "--deterministic"}) {
    if (command.count(option) > 0) throw UsageError(cat("--cluster excludes ", option));
  }
  const std::optional<int> ranks =
      command.count("--ranks") > 0 ? std::optional(options.ranks) : std::nullopt;
  return explain_on_cluster({.cluster = load_cluster(options.cluster, ranks),
                             .text = options.cluster,
                             .collective = collective_named(options.collective),
                             .bytes = {static_cast<double>(parse_bytes(options.bytes))},
                             .json = options.json});
}

}  // namespace

uint64_t block_bytes(Collective collective, int ranks, uint64_t bytes) {
  return has_blocks(collective) ? bytes / static_cast<uint64_t>(ranks) : bytes;
}

void add_explain(CommandLine& line) {
  const auto o = std::make_shared<ExplainOptions>();
  Command command =
      line.add("explain", "which algorithm a call takes, what the others would take, and why");
  command.add_option("collective", o->collective, "all_reduce, all_gather, ...")
      .required()
      .suggest(collective_names());
  command.add_option("-n,--ranks", o->ranks, "ranks").between(1, 1 << 20).show_default();
  command.add_option("--bytes", o->bytes, "size, as `tutti bench` counts it").show_default();
  command.add_option("--dtype", o->dtype, "element type").show_default().suggest(dtype_names());
  command
      .add_option("--transport", o->transport,
                  "as in TUTTI_TRANSPORT; auto: the best between hosts that was measured")
      .one_of(transport_names())
      .show_default();
  command.add_option("--group", o->group, kGroupHelp).type_name("N");
  command.add_option("--root", o->root, "of a collective that has one").show_default();
  command.add_flag("--deterministic", o->deterministic, "canonical algorithms only");
  command
      .add_option(
          "--gpu", o->gpu,
          "for ranks with a GPU each, on one host: a100, h100, b200 (NVLink and a switch), "
          "mi300x (a mesh), pcie3 to pcie5, or auto (this machine's); without --bytes the choices "
          "from 8 bytes to 1 GiB")
      .type_name("CLASS");
  command
      .add_option("--cluster", o->cluster,
                  "what NCCL's algorithms take on a cluster of GPUs: a name, a line or a file; see "
                  "below")
      .type_name("CLUSTER");
  command
      .add_option("--buffers", o->buffers,
                  "of GPUs, as in `tutti bench`: user, registered (windows), library (windows that "
                  "a switch adds up)")
      .one_of({"user", "registered", "library"})
      .show_default();
  command.add_option("--json", o->json, "write the prices to this file").type_name("FILE");
  command.footer(cat(kClusterHelp,
                     "\nExamples:\n  tutti explain all_reduce -n 16 --group 8 --bytes 4M\n"
                     "  tutti explain all_reduce -n 8 --gpu h100\n"
                     "  tutti explain all_gather --cluster p5:32 --bytes 32M"));
  command.runs([command, o] {
    if (!o->cluster.empty()) return run_cluster(command, *o);
    if (o->gpu.empty() && command.count("--buffers") > 0) {
      throw UsageError("--buffers without --gpu");
    }
    if (o->gpu.empty()) return run(*o);
    refuse_what_is_not_of_gpus(command);
    o->all_sizes = command.count("--bytes") == 0;
    return run_gpu(*o);
  });
}

}  // namespace tutti::tool
