// tutti partition: profiles a model's layers and assigns them to the ranks of a cluster.
#include "training/pipeline/partition.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_text.h"
#include "base/json.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/train/report.h"
#include "training/pipeline/profile.h"
#include "training/pipeline/profile_json.h"
#include "training/setup/flags.h"
#include "training/setup/options.h"
#include "training/setup/random_batch.h"

namespace tutti::tool {
namespace {

using training::pipeline::Cluster;
using training::pipeline::Layer;
using training::pipeline::Partition;
using training::pipeline::Profile;
using training::pipeline::Stage;

struct LinkOptions {
  std::string bandwidth;
  double latency = 0;  // microseconds
};

struct PartitionOptions {
  training::GivenOptions given_options;
  training::RunOptions train;  // the resulting run
  std::optional<int64_t> micro_batch;
  int runs = 5;
  int nodes = 1;
  int ranks_per_node = 1;
  LinkOptions inside;
  LinkOptions between;
  std::string memory;
  std::string profile;
  std::string save_profile;
  std::string json;
};

// --- Input ---

// Returns the link that connects `ends` nodes or ranks. Throws if there are several of them and no
// bandwidth is given.
training::pipeline::Link link_of(const LinkOptions& options, const char* name, int ends,
                                 const char* what) {
  const uint64_t bandwidth = options.bandwidth.empty() ? 0 : parse_bytes(options.bandwidth);
  if (bandwidth == 0 && ends > 1) {
    throw Error(ErrorCode::invalid_argument,
                cat("the bandwidth between ", ends, ' ', what, " is missing or 0"),
                {.where = name, .remedy = "give it in bytes per second: 10G"});
  }
  return {.bandwidth = static_cast<double>(bandwidth), .latency = options.latency * 1e-6};
}

Cluster cluster_of(const PartitionOptions& options) {
  Cluster cluster{.nodes = options.nodes, .ranks_per_node = options.ranks_per_node};
  cluster.inside =
      link_of(options.inside, "--bandwidth-inside", cluster.ranks_per_node, "ranks of a node");
  cluster.between = link_of(options.between, "--bandwidth-between", cluster.nodes, "nodes");
  if (!options.memory.empty()) {
    cluster.parameter_memory = static_cast<int64_t>(parse_bytes(options.memory));
  }
  return cluster;
}

Profile measured(training::Model& model, const training::RunOptions& train, int64_t samples,
                 int runs) {
  const training::Batch batch =
      training::random_batch(model.configuration(), samples, model.targets_per_sample());
  return training::pipeline::profile_model(model, batch.view(),
                                           {.dtype = train.training.replica.storage.dtype,
                                            .checkpoint_units = train.recompute == "full"},
                                           runs);
}

// --- Output ---

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f ms", 1e3 * seconds);
  return text;
}

void print_layers(const Profile& profile) {
  std::printf("%s: %zu layers, micro-batches of %lld\n", profile.model.c_str(),
              profile.layers.size(), static_cast<long long>(profile.samples));
  std::printf("%-16s %12s %12s %12s %12s\n", "layer", "forward", "backward", "output",
              "parameters");
  for (const Layer& layer : profile.layers) {
    std::printf("%-16s %12s %12s %12s %12s\n", layer.name.c_str(),
                milliseconds(layer.forward).c_str(), milliseconds(layer.backward).c_str(),
                readable_bytes(layer.activation_bytes).c_str(),
                readable_bytes(layer.parameter_bytes).c_str());
  }
}

std::string layers_of(const Profile& profile, const Stage& stage) {
  const auto name = [&](int layer) { return profile.layers[static_cast<size_t>(layer)].name; };
  const std::string first = name(stage.first);
  return stage.end - stage.first == 1 ? first : cat(first, " to ", name(stage.end - 1));
}

void print_stages(const Profile& profile, const Cluster& cluster, const Partition& plan) {
  std::printf("\n%zu stage%s on %d of %d ranks (%d x %d), %d micro-batch%s in flight\n",
              plan.stages.size(), plan.stages.size() == 1 ? "" : "s", plan.ranks(), cluster.ranks(),
              cluster.nodes, cluster.ranks_per_node, plan.micro_batches_in_flight(),
              plan.micro_batches_in_flight() == 1 ? "" : "es");
  std::printf("%-5s %-24s %8s %12s %12s  %s\n", "stage", "layers", "replicas", "time", "boundary",
              "ranks");
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const Stage& stage = plan.stages[i];
    std::printf("%-5zu %-24s %8zu %12s %12s  %s\n", i, layers_of(profile, stage).c_str(),
                stage.ranks.size(), milliseconds(stage.time).c_str(),
                milliseconds(stage.boundary).c_str(), rank_ranges(stage.ranks).c_str());
  }
}

struct Alternative {
  const char* key;
  const char* name;
  std::optional<Partition> partition;  // nothing: the parameters do not fit
};

void print_alternatives(const Profile& profile, const std::vector<Alternative>& alternatives) {
  std::printf("\n%-24s %6s %12s %12s\n", "predicted", "ranks", "micro-batch", "samples/s");
  for (const Alternative& alternative : alternatives) {
    if (!alternative.partition) {
      std::printf("%-24s the parameters do not fit\n", alternative.name);
      continue;
    }
    std::printf("%-24s %6d %12s %12.1f\n", alternative.name, alternative.partition->ranks(),
                milliseconds(alternative.partition->time).c_str(),
                static_cast<double>(profile.samples) * alternative.partition->throughput());
  }
}

// Returns a text: "2, 1 and 1".
std::string replicas_of(const Partition& plan) {
  std::string text;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const bool is_last = i + 1 == plan.stages.size();
    text += cat(i == 0 ? "" : is_last ? " and " : ", ", plan.stages[i].ranks.size());
  }
  return text;
}

std::string train_options(const Partition& even) {
  const size_t stages = even.stages.size();
  std::string options = cat("--dp ", even.stages.front().ranks.size());
  if (stages == 1) return options;
  options += cat(" --pp ", stages, " --cut ");
  for (size_t i = 0; i < stages; ++i) options += cat(i == 0 ? "" : ",", even.stages[i].first);
  return options;
}

// Prints the command by which `tutti train` runs `even`, whose stages have equal numbers of
// replicas, as a mesh requires. If those of `plan` differ, prints how much slower `even` is.
void print_runnable(const Partition& plan, const Partition& even) {
  const auto replicas = [](const Stage& stage) { return stage.ranks.size(); };
  const size_t first = replicas(plan.stages.front());
  const bool is_even = std::ranges::all_of(
      plan.stages, [&](const Stage& stage) { return replicas(stage) == first; });
  if (!is_even) {
    std::printf("\n`tutti train` does not run stages of %s replicas; the nearest that it runs",
                replicas_of(plan).c_str());
    std::printf(" makes %.1f%% fewer samples/s:", 100 * (1 - plan.time / even.time));
  }
  std::printf("\n  tutti train ... -n %d %s\n", even.ranks(), train_options(even).c_str());
}

Json json_of(const Profile& profile, const Partition& partition) {
  Json stages = Json::array();
  for (const Stage& stage : partition.stages) {
    stages.push_back({{"first", stage.first},
                      {"end", stage.end},
                      {"layers", layers_of(profile, stage)},
                      {"ranks", stage.ranks},
                      {"time_s", stage.time},
                      {"boundary_s", stage.boundary}});
  }
  return {{"time_s", partition.time},
          {"samples_per_s", static_cast<double>(profile.samples) * partition.throughput()},
          {"ranks", partition.ranks()},
          {"micro_batches_in_flight", partition.micro_batches_in_flight()},
          {"stages", stages}};
}

void write_json(std::ofstream& file, const std::string& path, const Profile& profile,
                const std::vector<Alternative>& alternatives) {
  if (!file.is_open()) return;
  Json document = {{"profile", Json::parse(to_json(profile))}};
  for (const Alternative& alternative : alternatives) {
    document[alternative.key] =
        alternative.partition ? json_of(profile, *alternative.partition) : Json();
  }
  append(file, path, document.dump(2) + '\n');
}

// --- The command ---

// Returns the partition, or nothing if the parameters do not fit. The arguments are valid, because
// partition() has checked them before.
std::optional<Partition> if_it_fits(Partition (*strategy)(std::span<const Layer>, const Cluster&),
                                    const Profile& profile, const Cluster& cluster) {
  try {
    return strategy(profile.layers, cluster);
  } catch (const Error&) {
    return std::nullopt;
  }
}

int run_partition(PartitionOptions& options) {
  // Arguments are checked before files are opened and before the profile.
  const Cluster cluster = cluster_of(options);
  Profile profile;
  std::unique_ptr<training::Model> model;
  if (options.profile.empty()) {
    model = training::make_model(options.train.model, model_context(options.train));
  } else {
    profile = training::pipeline::profile_from_json(file_text(options.profile, FileKind::profile),
                                                    options.profile);
  }
  std::ofstream json = open_for_writing(options.json, "--json");
  std::ofstream saved = open_for_writing(options.save_profile, "--save-profile");
  if (model) {
    const auto samples = options.micro_batch.value_or(
        static_cast<int64_t>(training::kind_of(options.train.model).traits.micro_batch));
    profile = measured(*model, options.train, samples, options.runs);
  }
  if (saved.is_open()) append(saved, options.save_profile, to_json(profile));

  const Partition plan = training::pipeline::partition(profile.layers, cluster);
  const std::vector<Alternative> alternatives = {
      {"partition", "this partition", plan},
      {"data_parallel", "data-parallel",
       if_it_fits(training::pipeline::data_parallel, profile, cluster)},
      {"pipeline", "pipeline without replicas",
       if_it_fits(training::pipeline::unreplicated_pipeline, profile, cluster)},
      {"even", "equally many replicas",
       if_it_fits(training::pipeline::even_partition, profile, cluster)}};
  print_layers(profile);
  print_stages(profile, cluster, plan);
  print_alternatives(profile, alternatives);
  if (alternatives.back().partition) print_runnable(plan, *alternatives.back().partition);
  write_json(json, options.json, profile, alternatives);
  return 0;
}

void add_cluster(Command command, PartitionOptions& options) {
  constexpr auto kGroup = "Cluster";
  const auto add = [&](const char* name, auto& value, const char* meaning) {
    return command.add_option(name, value, meaning).group(kGroup);
  };
  constexpr int kMost = 1024;
  add("--nodes", options.nodes, "number of nodes").between(1, kMost).show_default();
  add("--ranks-per-node", options.ranks_per_node, "number of ranks per node")
      .between(1, kMost)
      .show_default();
  add("--bandwidth-inside", options.inside.bandwidth,
      "bandwidth between the ranks of a node, in bytes per second (10G)")
      .type_name("SIZE");
  add("--bandwidth-between", options.between.bandwidth,
      "bandwidth between nodes, in bytes per second (1G)")
      .type_name("SIZE");
  constexpr double kSlowest = 1e9;
  add("--latency-inside", options.inside.latency,
      "latency of a message between the ranks of a node, in microseconds")
      .between(0, kSlowest)
      .show_default();
  add("--latency-between", options.between.latency,
      "latency of a message between nodes, in microseconds")
      .between(0, kSlowest)
      .show_default();
  add("--parameter-memory", options.memory,
      "maximum size of the parameters on a rank, in bytes; subtract the memory that gradients and "
      "optimizer state need (default: no limit)")
      .type_name("SIZE");
}

// Adds the options of the profile.
void add_profiling(Command command, PartitionOptions& options) {
  command
      .add_option("--micro-batch", options.micro_batch,
                  "samples per forward and backward pass (default: 32; gpt2 and unet: 8; resnet, "
                  "perceptron and convnet: 64)")
      .between(1, 1 << 20);
  command.add_option("--runs", options.runs, "number of timed runs per layer; the median is used")
      .between(1, 1000)
      .show_default();
  training::add_model_flags(command, options.given_options.settings);
  add_pass_options(command, options.given_options);
}

}  // namespace

void add_partition(CommandLine& line) {
  const auto options = std::make_shared<PartitionOptions>();
  Command command =
      line.add("partition", "profile a model and find the best assignment of layers to ranks");
  add_profiling(command, *options);
  const std::vector<std::string> profiling = command.option_names();
  add_cluster(command, *options);
  command
      .add_option("--profile", options->profile,
                  "read the profile from this file instead of profiling a model")
      .type_name("FILE");
  command.add_option("--save-profile", options->save_profile, "write the profile to this file")
      .type_name("FILE");
  command.add_option("--json", options->json, "write the partition and the alternatives as JSON")
      .type_name("FILE");
  command.footer(
      "The prediction covers the steady state, without pipeline fill and drain. The profile uses\n"
      "synthetic data.\n"
      "Example:\n"
      "  tutti partition --model gpt2 --layers 12 --micro-batch 4 --nodes 2 --ranks-per-node 4 \\\n"
      "    --bandwidth-inside 20G --bandwidth-between 1G");
  command.runs([options, profiling, command] {
    for (const std::string& option : profiling) {
      if (options->profile.empty() || command.count(option) == 0) continue;
      throw Error(ErrorCode::invalid_argument, cat("both --profile and ", option, " were given"),
                  {.remedy = "give either --profile or the options of the model to profile"});
    }
    options->train = options_of(options->given_options);
    return run_partition(*options);
  });
}

}  // namespace tutti::tool
