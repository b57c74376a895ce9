#include "training/planner/local/local_step.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "training/models/registry.h"
#include "training/parallel/mesh.h"
#include "training/pipeline/placement.h"
#include "training/pipeline/plans.h"
#include "training/pipeline/simulate.h"
#include "training/run/memory_plan.h"
#include "training/setup/random_batch.h"

namespace tutti::training::planner {

namespace {

using pipeline::Profile;

// Times of a micro-batch through a unit or a chunk, in seconds.
struct Pass {
  double forward = 0;
  double backward = 0;
  double tensor = 0;  // part of forward + backward: sums over tensor-parallel ranks
  double context = 0;
  double experts = 0;

  double all() const { return forward + backward; }
};

void add(const Pass& pass, Pass& to) {
  to.forward += pass.forward;
  to.backward += pass.backward;
  to.tensor += pass.tensor;
  to.context += pass.context;
  to.experts += pass.experts;
}

double count(int64_t value) { return static_cast<double>(value); }

class LocalPricing {
 public:
  LocalPricing(const RunOptions& settled, const MeshPlace& place, const Profile& profile,
               int at_once, HostPrices& prices)
      : run_(settled),
        replica_(settled.training.replica),
        place_(place),
        profile_(profile),
        prices_(prices),
        model_(make_model(settled.model, model_context(settled, place))),
        plans_(replica_.pipeline.schedule, stages(), replica_.pipeline.virtual_stages),
        ranks_(place.ranks_along(AxisSet::all())),
        at_once_(std::min(at_once, ranks_)) {
    const auto up = [](uint64_t number, uint64_t by) { return (number + by - 1) / by; };
    const uint64_t micro_batches = up(run_.training.batch, run_.training.micro_batch);
    passes_ = static_cast<int64_t>(up(
        micro_batches,
        static_cast<uint64_t>(roles_of(replica_.sync, place.ranks_along(kSampleAxes)).workers())));
    cut_ = replica_.pipeline.cut.empty() ? pipeline::estimated_cut(*model_, plans_.chunks())
                                         : replica_.pipeline.cut;
  }

  LocalStep price() {
    LocalStep step;
    price_passes(step.time);
    price_sums(parameter_bytes(), step.time);
    step.memory = memory();
    return step;
  }

  double unit_seconds(int unit) {
    StepTime time;
    time.computing = turns() * count(passes_) * pass_of(unit).all();
    price_sums(parameter_bytes_of(unit), time);
    return time.total();
  }

 private:
  int stages() const { return place_.size(Axis::pipeline); }
  // Returns how many ranks take turns in one place: all ranks divided by the ranks that compute at
  // once.
  double turns() const { return count(ranks_) / at_once_; }
  // Returns the number of processors for a group of `ranks` ranks while all `of` ranks communicate
  // in such groups.
  double share_of(int ranks, int of) const { return count(prices_.processors()) * ranks / of; }

  double seconds_of(const UnsentMessage& message, int ranks) {
    // The ranks of one stage share all processors here, because price_passes() counts the turns of
    // the other stages.
    const double processors = share_of(ranks, ranks_ / stages());
    const double whole = message.bytes * ranks / (ranks - 1);
    const std::string_view call = message.call;
    const auto of = [&](Collective collective, double bytes) {
      return prices_.collective(collective, ranks, bytes, processors);
    };
    if (call == "all_reduce") return of(Collective::all_reduce, whole / 2);
    if (call == "reduce_scatter") return of(Collective::reduce_scatter, whole);
    if (call == "all_gather") return of(Collective::all_gather, whole);
    if (call == "all_to_all") return of(Collective::all_to_all, whole);
    return prices_.message(message.bytes) * std::max(1.0, 1 / share_of(1, ranks_));
  }

  double add_messages(const std::vector<UnsentMessage>& messages, Pass& pass) {
    double all = 0;
    for (const UnsentMessage& message : messages) {
      const bool of_experts = message.axis == Axis::expert;
      const int ranks = of_experts ? place_.ranks_along(place_.experts) : place_.size(message.axis);
      if (ranks == 1) continue;
      const double seconds = seconds_of(message, ranks);
      all += seconds;
      (of_experts                      ? pass.experts
       : message.axis == Axis::context ? pass.context
                                       : pass.tensor) += seconds;
    }
    return all;
  }

  Pass pass_of(int unit) {
    const auto at = static_cast<size_t>(unit);
    const bool again = is_checkpointed(*model_, replica_.runner, unit);
    Pass pass;
    pass.forward = profile_.layers[at].forward + add_messages(profile_.messages[at].forward, pass);
    pass.backward =
        profile_.layers[at].backward + add_messages(profile_.messages[at].backward, pass);
    if (again) {
      pass.backward +=
          profile_.layers[at].forward + add_messages(profile_.messages[at].forward, pass);
    }
    return pass;
  }

  std::vector<Pass> chunk_passes() {
    std::vector<Pass> chunks(cut_.size());
    const int units = static_cast<int>(std::ssize(model_->units()));
    for (size_t chunk = 0; chunk < cut_.size(); ++chunk) {
      const int end = chunk + 1 < cut_.size() ? cut_[chunk + 1] : units;
      for (int unit = cut_[chunk]; unit < end; ++unit) add(pass_of(unit), chunks[chunk]);
    }
    return chunks;
  }

  // Returns the estimated seconds after which a waiting stage yields a processor that stages share:
  // two time slices of the kernel, or a part of an entry of the schedule if that is shorter.
  // `entry`: mean time of an entry.
  static double hand_over_of(double entry) {
    constexpr double kTwoSlices = 6e-3;
    constexpr double kPart = 0.3;
    return std::min(kTwoSlices, kPart * entry);
  }

  void price_passes(StepTime& time) {
    const std::vector<Pass> chunks = chunk_passes();
    Pass model;
    for (const Pass& chunk : chunks) add(chunk, model);
    // The time of a step without a bubble, divided by the time of one micro-batch through the
    // model.
    const double part = turns() * count(passes_) / stages();
    time.tensor = part * model.tensor;
    time.context = part * model.context;
    time.dispatch = part * model.experts;
    time.computing = part * model.all() - time.tensor - time.context - time.dispatch;
    if (stages() == 1) return;
    const Boundaries boundaries = price_boundaries(chunks);
    time.transfers = part_of_stages(boundaries.seconds);
    time.bubble =
        std::max(0.0, makespan(chunks, boundaries.message) - part * model.all() - time.transfers);
  }

  struct Boundaries {
    std::vector<double> message;  // seconds from each chunk to the next one
    double seconds = 0;           // seconds summed over all ranks of a replica
  };

  Boundaries price_boundaries(const std::vector<Pass>& chunks) {
    Pass model;
    for (const Pass& chunk : chunks) add(chunk, model);
    const double entry = model.all() / count(2 * std::ssize(chunks));
    const double hand_over = processors_of_replica() < stages() ? hand_over_of(entry) : 0;
    Boundaries boundaries;
    for (size_t chunk = 0; chunk + 1 < chunks.size(); ++chunk) {
      const auto last = static_cast<size_t>(cut_[chunk + 1]) - 1;
      const double bytes = count(profile_.layers[last].activation_bytes);
      boundaries.message.push_back(prices_.message(bytes));
      boundaries.seconds += 2 * count(passes_) * (boundaries.message.back() + hand_over);
    }
    return boundaries;
  }

  double processors_of_replica() const { return at_once_ * count(stages()) / ranks_; }
  double part_of_stages(double seconds) const { return turns() * seconds / stages(); }

  // Returns the makespan of a replica whose stages take turns on its processors. Fractions of
  // processors count in proportion.
  double makespan(const std::vector<Pass>& chunks, const std::vector<double>& message) {
    pipeline::Costs costs{
        .forward = {}, .backward_input = {}, .backward_weight = {}, .message = message};
    const bool is_split = plans_.layout().schedule.has_split_backward();
    for (const Pass& chunk : chunks) {
      costs.forward.push_back(chunk.forward);
      costs.backward_input.push_back(is_split ? chunk.backward / 2 : chunk.backward);
      costs.backward_weight.push_back(is_split ? chunk.backward / 2 : 0);
    }
    const double processors = processors_of_replica();
    const int whole = std::max(1, static_cast<int>(processors));
    const auto of = [&](int64_t passes) {
      return pipeline::makespan(plans_.training(passes), costs, whole) * whole / processors;
    };
    // After the first micro-batches, each further one takes the same time.
    const int64_t enough = int64_t{16} * stages();
    if (passes_ <= 2 * enough) return of(passes_);
    const double first = of(enough);
    const double slope = (of(2 * enough) - first) / count(enough);
    return first + slope * count(passes_ - enough);
  }

  // Bytes of parameters; key: number of ranks that sum the parameters' gradients.
  using BytesByGroup = std::map<int, double>;

  BytesByGroup parameter_bytes_of(int unit) const {
    const double element = count(static_cast<int64_t>(size_of(replica_.storage.dtype)));
    BytesByGroup bytes;
    for (const int index : model_->parameters().used_by(unit)) {
      const ParameterSpec& spec = model_->parameters().specs()[static_cast<size_t>(index)];
      bytes[place_.ranks_along(spec.placement.summed_over())] +=
          element * count(spec.local_count());
    }
    return bytes;
  }

  // Returns the bytes of parameters on the stage that has the most bytes.
  BytesByGroup parameter_bytes() const {
    std::vector<BytesByGroup> bytes(static_cast<size_t>(stages()));
    const int units = static_cast<int>(std::ssize(model_->units()));
    for (size_t chunk = 0; chunk < cut_.size(); ++chunk) {
      const std::vector<int>& holders = plans_.layout().holders[chunk];
      const int end = chunk + 1 < cut_.size() ? cut_[chunk + 1] : units;
      for (int unit = cut_[chunk]; unit < end; ++unit) {
        for (const int holder : holders) {
          for (const auto& [group, more] : parameter_bytes_of(unit)) {
            bytes[static_cast<size_t>(holder)][group] += more;
          }
        }
      }
    }
    const auto all = [](const BytesByGroup& groups) {
      double sum = 0;
      for (const auto& [group, its] : groups) sum += its;
      return sum;
    };
    return *std::ranges::max_element(bytes, {}, all);
  }

  // Adds the times of the gradient sums and updates of all groups to `time`.
  void price_sums(const BytesByGroup& bytes, StepTime& time) {
    for (const auto& [group, own] : bytes) {
      StepTime part;
      price_sums(own, group, part);
      time.sums += part.sums;
      time.gathers += part.gathers;
      time.update += part.update;
    }
  }

  void price_sums(double own, int group, StepTime& time) {
    const StorageOptions& storage = replica_.storage;
    const double elements = own / count(static_cast<int64_t>(size_of(storage.dtype)));
    const double bucket = count(storage.bucket_elements) * sizeof(float);
    const double gradients = elements * sizeof(float);
    const auto in_buckets = [&](Collective collective, double bytes) {
      const double buckets = std::max(1.0, bytes / bucket);
      return buckets *
             prices_.collective(collective, group, bytes / buckets, share_of(group, ranks_));
    };
    if (group > 1) {
      const double scatters = storage.stage >= 2 && shards_sums(replica_) ? count(passes_) : 1;
      if (storage.stage == 0) {
        time.sums = in_buckets(Collective::all_reduce, gradients);
      } else {
        time.sums = scatters * in_buckets(Collective::reduce_scatter, gradients);
        const double gathers = in_buckets(Collective::all_gather, own);
        (storage.stage == 3 ? time.gathers : time.sums) +=
            gathers * (storage.stage == 3 ? 2 * count(passes_) : 1);
      }
    }
    // The prediction ignores compression of gradients.
    time.sums /= count(std::max<int64_t>(1, replica_.sync.every));
    if (replica_.sync.secure_sums) time.sums *= sizeof(uint64_t) / sizeof(float);
    // With gossip a rank sends one message of all values per update; in a ring, one to each
    // neighbour.
    const SyncOptions& sync = replica_.sync;
    const bool to_peers = sync.kind == SyncKind::gossip && sync.graph != GossipGraph::complete;
    // async gossip: a rank sends its values to a peer, which answers with its own
    const bool asks = sync.kind == SyncKind::async_gossip;
    if (group > 1 && (to_peers || asks || sync.kind == SyncKind::push_sum)) {
      const int messages = asks || (sync.graph == GossipGraph::ring && group > 2) ? 2 : 1;
      time.sums = messages * prices_.message(gradients) * std::max(1.0, 1 / share_of(1, ranks_));
    }
    // All workers send a shard's gradients to the shard's server, which sends them the shard's
    // values.
    const Roles roles = roles_of(sync, group);
    if (group > 1 && sync.has_servers()) {
      const double senders = roles.apart == 0 ? group - 1 : roles.workers();
      const double shard = gradients / roles.servers();
      time.sums = 2 * prices_.message(senders * shard) * std::max(1.0, 1 / share_of(1, ranks_));
    }
    // Bytes per parameter: the update reads gradients, and reads and writes masters and two states.
    // Before it, gradients are zeroed and their norm is computed.
    constexpr double kUpdated = 28;
    constexpr double kOfGradients = 8;
    const double owners = sync.has_servers() ? roles.servers() : storage.stage > 0 ? group : 1;
    const double owned = elements / owners;
    time.update = turns() * prices_.moved(kUpdated * owned + kOfGradients * elements);
  }

  std::vector<MemoryUse> memory() {
    Batch batch =
        random_batch(model_->configuration(), profile_.samples, model_->targets_per_sample());
    if (place_.size(Axis::context) > 1) {
      batch.deal_out(model_->attention_window(), 0, place_.size(Axis::context));
    }
    const MicroBatch micro_batch = batch.view();
    const MemoryPlan plan(*model_, micro_batch, run_.training, passes_, profile_);
    const int of_a_stage = ranks_ / stages();
    std::vector<MemoryUse> uses;
    for (int stage = 0; stage < stages(); ++stage) {
      const MemoryReport report = plan.of(place_.of_rank(stage * of_a_stage));
      uses.push_back({.parameters = count(report.storage.parameters),
                      .gradients = count(report.storage.gradients),
                      .states = count(report.optimizer + report.storage.masters),
                      .activations = count(report.activations),
                      .buffers = count(report.storage.gathered + report.storage.padding +
                                       report.boundaries + report.copies + report.compression)});
    }
    return uses;
  }

  const RunOptions& run_;
  const ReplicaOptions& replica_;
  const MeshPlace& place_;
  const Profile& profile_;
  HostPrices& prices_;
  std::unique_ptr<Model> model_;
  pipeline::Plans plans_;
  int ranks_;
  int at_once_;
  int64_t passes_ = 1;
  std::vector<int> cut_;
};

}  // namespace

LocalStep local_step(const RunOptions& settled, const MeshPlace& place, const Profile& profile,
                     int at_once, HostPrices& prices) {
  return LocalPricing(settled, place, profile, at_once, prices).price();
}

std::vector<double> unit_seconds(const RunOptions& settled, const MeshPlace& place,
                                 const Profile& profile, int at_once, HostPrices& prices) {
  LocalPricing pricing(settled, place, profile, at_once, prices);
  std::vector<double> seconds;
  for (size_t unit = 0; unit < profile.layers.size(); ++unit) {
    seconds.push_back(pricing.unit_seconds(static_cast<int>(unit)));
  }
  return seconds;
}

}  // namespace tutti::training::planner
