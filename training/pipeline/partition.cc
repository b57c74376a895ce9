#include "training/pipeline/partition.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training::pipeline {
namespace {

constexpr double kNoTime = std::numeric_limits<double>::infinity();
// limit of workers per level, because the time of the search grows with the square of their number
constexpr int kMostWorkers = 1024;

double seconds_on(const Link& link, double bytes) { return link.latency + bytes / link.bandwidth; }

// Returns T^k(i -> j, m) for a stage that takes `alone` seconds on one worker.
double replicated(double alone, int workers, double parameter_bytes, const Link& link) {
  if (workers == 1) return alone;
  const double sums =
      parameter_bytes == 0 ? 0 : 2.0 * (workers - 1) * seconds_on(link, parameter_bytes);
  return std::max(alone, sums) / workers;
}

// A number for each range of layers [first, end).
class Runs {
 public:
  explicit Runs(size_t layers) : ends_(layers + 1), values_(layers * ends_) {}
  double& at(size_t first, size_t end) { return values_[first * ends_ + end]; }
  double at(size_t first, size_t end) const { return values_[first * ends_ + end]; }

 private:
  size_t ends_;
  std::vector<double> values_;
};

template <typename Value>
Runs sums(std::span<const Layer> layers, Value value) {
  Runs runs(layers.size());
  for (size_t first = 0; first < layers.size(); ++first) {
    for (size_t end = first; end < layers.size(); ++end) {
      runs.at(first, end + 1) = runs.at(first, end) + value(layers[end]);
    }
  }
  return runs;
}

// A stage of one level: layers [first, end) on some workers.
struct Part {
  size_t first = 0;
  size_t end = 0;
  int workers = 0;
};

struct Level {
  std::span<const Layer> layers;
  const Runs& parameter_bytes;
  int workers = 1;
  Link link;
  bool replicates = true;
  Runs alone;  // A^{k-1}(i -> j, all) of each range

  double stage(const Part& part) const {
    if (part.workers > 1 && !replicates) return kNoTime;
    return replicated(alone.at(part.first, part.end), part.workers,
                      parameter_bytes.at(part.first, part.end), link);
  }
  // Returns the time of the message from layer end - 1 to layer end, and of the gradient that is
  // sent back.
  double boundary(size_t end) const {
    return 2 * seconds_on(link, static_cast<double>(layers[end - 1].activation_bytes));
  }
};

// Computes A^k(first -> end, m) of one level and one `first`, for every end and m.
class Pipelines {
 public:
  Pipelines(const Level& level, size_t first) : level_(level), first_(first) {
    const size_t layers = level.layers.size() - first;
    best_.assign(layers + 1, std::vector<Choice>(static_cast<size_t>(level.workers) + 1));
    for (size_t end = first + 1; end <= level.layers.size(); ++end) {
      for (int m = 1; m <= level.workers; ++m) {
        at(end, m) = {level.stage({first, end, m}), {first, end, m}};
      }
      for (size_t split = first + 1; split < end; ++split) try_last_stage(split, end);
    }
  }

  // Returns the time with the best number of workers.
  double time(size_t end) const { return at(end, best_workers(end)).time; }

  std::vector<Part> parts(size_t end) const {
    std::vector<Part> parts;
    for (int workers = best_workers(end); end > first_;) {
      parts.push_back(at(end, workers).last);
      workers -= parts.back().workers;
      end = parts.back().first;
    }
    std::ranges::reverse(parts);
    return parts;
  }

 private:
  struct Choice {
    double time = kNoTime;
    Part last;  // the last stage
  };

  void try_last_stage(size_t split, size_t end) {
    for (int replicas = 1; replicas < level_.workers; ++replicas) {
      const Part last{split, end, replicas};
      const double slowest = std::max(level_.boundary(split), level_.stage(last));
      for (int m = replicas + 1; m <= level_.workers; ++m) {
        const double time = std::max(slowest, at(split, m - replicas).time);
        if (time < at(end, m).time) at(end, m) = {time, last};
      }
    }
  }

  int best_workers(size_t end) const {
    int best = 1;
    for (int m = 2; m <= level_.workers; ++m) {
      if (at(end, m).time < at(end, best).time) best = m;
    }
    return best;
  }

  Choice& at(size_t end, int m) { return best_[end - first_][static_cast<size_t>(m)]; }
  const Choice& at(size_t end, int m) const { return best_[end - first_][static_cast<size_t>(m)]; }

  const Level& level_;
  size_t first_;
  std::vector<std::vector<Choice>> best_;  // indexed by end - first_, then by workers
};

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, what, {.where = "partition", .remedy = remedy});
}

void check(const char* name, int workers, const Link& link) {
  if (workers < 1 || workers > kMostWorkers) {
    refuse(cat("invalid number of ", name, ": ", workers),
           cat("use a number from 1 to ", kMostWorkers));
  }
  if (workers == 1) return;
  if (!(link.bandwidth > 0) || !(link.latency >= 0 && std::isfinite(link.latency))) {
    refuse(cat("the links of ", workers, ' ', name, " cannot have a bandwidth of ", link.bandwidth,
               " bytes/s and a latency of ", link.latency, " s"),
           "use a bandwidth above 0 and a latency of at least 0");
  }
}

void check(std::span<const Layer> layers, const Cluster& cluster) {
  if (layers.empty()) refuse("there are no layers", "use at least one layer");
  for (const Layer& layer : layers) {
    const double time = layer.forward + layer.backward;
    if (layer.forward >= 0 && layer.backward >= 0 && std::isfinite(time) &&
        layer.activation_bytes >= 0 && layer.parameter_bytes >= 0) {
      continue;
    }
    refuse(cat("layer ", layer.name, " has invalid costs: ", layer.forward, " s forward, ",
               layer.backward, " s backward, ", layer.activation_bytes, " bytes of activations, ",
               layer.parameter_bytes, " bytes of parameters"),
           "use finite numbers of at least 0");
  }
  check("ranks per node", cluster.ranks_per_node, cluster.inside);
  check("nodes", cluster.nodes, cluster.between);
  if (cluster.parameter_memory < 0) {
    refuse(cat("the memory of a rank cannot be ", cluster.parameter_memory, " bytes"),
           "use 0 for unlimited memory");
  }
}

[[noreturn]] void refuse_size(std::span<const Layer> layers, const Cluster& cluster) {
  const Layer& largest = *std::ranges::max_element(layers, {}, &Layer::parameter_bytes);
  throw Error(ErrorCode::invalid_argument,
              cat("the layers' parameters do not fit on ", cluster.ranks(), " ranks with ",
                  cluster.parameter_memory, " bytes of memory each"),
              {.where = "partition",
               .cause = cat("layer ", largest.name, " is the largest, with ",
                            largest.parameter_bytes, " bytes"),
               .remedy = "use more ranks, or ranks with more memory"});
}

// Returns A^0, which is infinite if the parameters do not fit on a rank.
Runs rank_times(std::span<const Layer> layers, const Runs& parameter_bytes, int64_t memory) {
  Runs times = sums(layers, [](const Layer& layer) { return layer.forward + layer.backward; });
  if (memory == 0) return times;
  for (size_t first = 0; first < layers.size(); ++first) {
    for (size_t end = first + 1; end <= layers.size(); ++end) {
      if (parameter_bytes.at(first, end) > static_cast<double>(memory)) {
        times.at(first, end) = kNoTime;
      }
    }
  }
  return times;
}

Runs node_times(const Level& ranks) {
  const size_t layers = ranks.layers.size();
  Runs times(layers);
  for (size_t first = 0; first < layers; ++first) {
    const Pipelines pipelines(ranks, first);
    for (size_t end = first + 1; end <= layers; ++end) times.at(first, end) = pipelines.time(end);
  }
  return times;
}

Runs parameter_sums(std::span<const Layer> layers) {
  return sums(layers,
              [](const Layer& layer) { return static_cast<double>(layer.parameter_bytes); });
}

// Returns the ranks [first_rank, first_rank + count) of each of `workers` workers, which have
// `width` ranks each.
std::vector<int> ranks_of(int first_worker, int workers, int width, int first_rank, int count) {
  std::vector<int> ranks;
  for (int worker = first_worker; worker < first_worker + workers; ++worker) {
    for (int rank = 0; rank < count; ++rank) ranks.push_back(worker * width + first_rank + rank);
  }
  return ranks;
}

Partition finished(std::vector<Stage> stages) {
  Partition result{.stages = std::move(stages)};
  for (const Stage& stage : result.stages) {
    result.time = std::max({result.time, stage.time, stage.boundary});
  }
  return result;
}

Partition search(std::span<const Layer> layers, const Cluster& cluster, bool replicates) {
  check(layers, cluster);
  const Runs parameter_bytes = parameter_sums(layers);
  const Level ranks{layers,
                    parameter_bytes,
                    cluster.ranks_per_node,
                    cluster.inside,
                    replicates,
                    rank_times(layers, parameter_bytes, cluster.parameter_memory)};
  const Level nodes{layers,          parameter_bytes, cluster.nodes,
                    cluster.between, replicates,      node_times(ranks)};
  const Pipelines pipelines(nodes, 0);
  if (pipelines.time(layers.size()) == kNoTime) refuse_size(layers, cluster);
  std::vector<Stage> stages;
  int node = 0;
  for (const Part& outer : pipelines.parts(layers.size())) {
    int rank = 0;
    for (const Part& inner : Pipelines(ranks, outer.first).parts(outer.end)) {
      Stage stage{static_cast<int>(inner.first), static_cast<int>(inner.end)};
      stage.ranks = ranks_of(node, outer.workers, ranks.workers, rank, inner.workers);
      // Gradients are summed between nodes once all ranks of a node have them, so the sum contains
      // the parameters of all stages in the node.
      stage.time = replicated(ranks.stage(inner), outer.workers,
                              parameter_bytes.at(outer.first, outer.end), nodes.link);
      if (inner.end < outer.end) {
        stage.boundary = ranks.boundary(inner.end) / outer.workers;
      } else if (outer.end < layers.size()) {
        stage.boundary = nodes.boundary(outer.end);
      }
      stages.push_back(stage);
      rank += inner.workers;
    }
    node += outer.workers;
  }
  return finished(std::move(stages));
}

// Pipelines whose stages have equally many replicas. Ranks are numbered stage by stage.
class EvenPipelines {
 public:
  EvenPipelines(std::span<const Layer> layers, const Cluster& cluster)
      : layers_(layers),
        cluster_(cluster),
        parameter_bytes_(parameter_sums(layers)),
        alone_(rank_times(layers, parameter_bytes_, cluster.parameter_memory)) {}

  // Returns the fastest pipeline with `replicas` ranks per stage; among equally fast pipelines, the
  // one with the fewest stages. The result has no stages if the parameters do not fit.
  Partition best(int replicas) const {
    const size_t layers = layers_.size();
    const size_t most = std::min(layers, static_cast<size_t>(cluster_.ranks() / replicas));
    // Indexed by the number of stages, then by the number of layers: the least time, and the first
    // layer of the last stage.
    std::vector<std::vector<double>> times(most + 1, std::vector<double>(layers + 1, kNoTime));
    std::vector<std::vector<size_t>> firsts(most + 1, std::vector<size_t>(layers + 1, 0));
    times[0][0] = 0;
    size_t best = 0;
    for (size_t count = 1; count <= most; ++count) {
      for (size_t end = count; end <= layers; ++end) {
        for (size_t first = count - 1; first < end; ++first) {
          const double time =
              std::max({times[count - 1][first], boundary(replicas, count - 1, first),
                        stage(replicas, first, end)});
          if (time >= times[count][end]) continue;
          times[count][end] = time;
          firsts[count][end] = first;
        }
      }
      if (times[count][layers] < times[best][layers]) best = count;
    }
    std::vector<Stage> stages(best);
    for (size_t count = best, end = layers; count > 0; --count) {
      const size_t first = firsts[count][end];
      stages[count - 1] = {.first = static_cast<int>(first),
                           .end = static_cast<int>(end),
                           .ranks = ranks_of(static_cast<int>(count) - 1, 1, replicas, 0, replicas),
                           .time = stage(replicas, first, end),
                           .boundary = boundary(replicas, count, end)};
      end = first;
    }
    return finished(std::move(stages));
  }

 private:
  // Returns true if the replicas of a stage are on one node.
  bool inside(int replicas) const { return replicas <= cluster_.ranks_per_node; }
  double stage(int replicas, size_t first, size_t end) const {
    const double alone = alone_.at(first, end);
    const double bytes = parameter_bytes_.at(first, end);
    const int in_node = cluster_.ranks_per_node;
    if (inside(replicas)) return replicated(alone, replicas, bytes, cluster_.inside);
    return replicated(replicated(alone, in_node, bytes, cluster_.inside), replicas / in_node, bytes,
                      cluster_.between);
  }
  // Returns the time of the boundary after the first `stages` stages, whose last layer is end - 1.
  double boundary(int replicas, size_t stages, size_t end) const {
    if (stages == 0 || end == layers_.size()) return 0;
    const bool in_node =
        cluster_.nodes == 1 ||
        (inside(replicas) && static_cast<int>(stages) * replicas % cluster_.ranks_per_node != 0);
    return 2 * seconds_on(in_node ? cluster_.inside : cluster_.between,
                          static_cast<double>(layers_[end - 1].activation_bytes));
  }

  std::span<const Layer> layers_;
  const Cluster& cluster_;
  Runs parameter_bytes_;
  Runs alone_;
};

}  // namespace

int Partition::ranks() const {
  size_t count = 0;
  for (const Stage& stage : stages) count += stage.ranks.size();
  return static_cast<int>(count);
}

int Partition::micro_batches_in_flight() const {
  const auto replicas = static_cast<int>(stages.front().ranks.size());
  return (ranks() + replicas - 1) / replicas;
}

Partition partition(std::span<const Layer> layers, const Cluster& cluster) {
  return search(layers, cluster, true);
}

Partition unreplicated_pipeline(std::span<const Layer> layers, const Cluster& cluster) {
  return search(layers, cluster, false);
}

Partition even_partition(std::span<const Layer> layers, const Cluster& cluster) {
  check(layers, cluster);
  const EvenPipelines pipelines(layers, cluster);
  Partition best;
  const auto try_replicas = [&](int replicas) {
    Partition found = pipelines.best(replicas);
    if (found.stages.empty()) return;
    if (best.stages.empty() || found.time < best.time) best = std::move(found);
  };
  for (int ranks = 1; ranks < cluster.ranks_per_node; ++ranks) {
    if (cluster.nodes == 1 || cluster.ranks_per_node % ranks == 0) try_replicas(ranks);
  }
  for (int nodes = 1; nodes <= cluster.nodes; ++nodes) try_replicas(nodes * cluster.ranks_per_node);
  if (best.stages.empty()) refuse_size(layers, cluster);
  return best;
}

Partition data_parallel(std::span<const Layer> layers, const Cluster& cluster) {
  check(layers, cluster);
  const Runs parameter_bytes = parameter_sums(layers);
  const double bytes = parameter_bytes.at(0, layers.size());
  const double rank =
      rank_times(layers, parameter_bytes, cluster.parameter_memory).at(0, layers.size());
  if (rank == kNoTime) refuse_size(layers, cluster);
  const double node = replicated(rank, cluster.ranks_per_node, bytes, cluster.inside);
  Stage stage{0, static_cast<int>(layers.size())};
  stage.ranks = ranks_of(0, cluster.nodes, cluster.ranks_per_node, 0, cluster.ranks_per_node);
  stage.time = replicated(node, cluster.nodes, bytes, cluster.between);
  return finished({stage});
}

}  // namespace tutti::training::pipeline
