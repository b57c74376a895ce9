#include "training/run/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "training/core/layout.h"
#include "training/optimizers/matrix_exchange.h"
#include "training/optimizers/registry.h"
#include "training/optimizers/whole_matrices.h"
#include "training/parallel/factor_layers.h"
#include "training/parallel/gradient_sums.h"
#include "training/pipeline/plans.h"

namespace tutti::training {
namespace {

using pipeline::Action;
using pipeline::Entry;
using pipeline::Kind;
using pipeline::Profile;
using pipeline::UnitMemory;

int64_t bytes_of(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }

// Bytes of a part of the model: in the slot of a micro-batch that is in flight, and in the scratch
// arena, which is used while a unit computes.
struct PartMemory {
  int64_t slot = 0;
  int64_t scratch = 0;
  int64_t validation = 0;  // bytes of the slot that validation uses
  int64_t files = 0;       // bytes in the file of the slot
  int64_t largest = 0;     // bytes of the largest unit output in the slot's file
};

// Predicts the memory of ModelRunner, which keeps activations of forward in one arena, and
// temporaries of backward (and of recomputed forwards) in another. If backward is split in two, its
// temporaries are in the first arena as well. During validation, the first arena contains the input
// and the forward activations of one unit at a time.
class PartPlan {
 public:
  PartPlan(const Model& model, const Profile& profile, const RunnerOptions& runner,
           const UnitRange& units, bool in_two_parts, bool in_files)
      : model_(model),
        profile_(profile),
        runner_(runner),
        units_(units),
        in_two_parts_(in_two_parts),
        in_files_(in_files) {}

  PartMemory memory() {
    for (int unit = units_.begin; unit < units_.end; ++unit) add(unit);
    if (in_two_parts_) most_kept_ = std::max(most_kept_, kept_ + stays_);
    return {most_kept_, temporary_, validation_, files_, largest_};
  }

 private:
  bool is_last(int index) const { return index + 1 == std::ssize(model_.units()); }
  int64_t part_of(int64_t bytes) const {
    return bytes / model_.parameters().mesh().size(Axis::tensor);
  }

  void add(int index) {
    const UnitMemory& memory = profile_.memory[static_cast<size_t>(index)];
    const int64_t output = profile_.layers[static_cast<size_t>(index)].activation_bytes;
    const int64_t gradient = is_last(index) ? 0 : output;
    const bool in_scratch = keeps_rows(model_, runner_, units_, index);
    const bool anew = is_checkpointed(model_, runner_, index);
    int64_t backward = memory.backward;
    validation_ = std::max(validation_, input_ + memory.forward);
    if (anew) {
      backward = gathered_ + std::max(memory.forward, memory.kept + memory.backward);
      temporary_ = std::max(temporary_, gathered_ + memory.forward);
    }
    if (in_scratch || anew) {
      keep(in_scratch ? part_of(output) : output);
      most_kept_ = std::max(most_kept_, kept_);
    } else {
      most_kept_ = std::max(most_kept_, kept_ + memory.forward);
      kept_ += memory.kept;
    }
    stays_ += backward;
    if (!in_two_parts_) temporary_ = std::max(temporary_, gradient + backward);
    input_ = output;
    gathered_ = in_scratch ? output : 0;
  }

  void keep(int64_t output) {
    (in_files_ ? files_ : kept_) += output;
    if (in_files_) largest_ = std::max(largest_, output);
  }

  const Model& model_;
  const Profile& profile_;
  const RunnerOptions& runner_;
  UnitRange units_;
  bool in_two_parts_;
  bool in_files_;
  int64_t files_ = 0, largest_ = 0;
  int64_t kept_ = 0, most_kept_ = 0, stays_ = 0, temporary_ = 0, validation_ = 0;
  int64_t input_ = 0;     // input of the current unit
  int64_t gathered_ = 0;  // bytes of the current unit's input, if it is kept in shards
};

// Returns the number of elements of temporary whole buckets that exist at once: two buckets of each
// size, because one is exchanged while the other is used. With `of_gradients`, buckets of a single
// rank are not exchanged, so one bucket of each size suffices.
int64_t planned_buckets(const Layout& layout, bool of_gradients) {
  std::map<std::pair<int64_t, bool>, int64_t> counts;  // key: size, and whether it is exchanged
  for (const Bucket& bucket : layout.buckets) {
    ++counts[{bucket.size, !of_gradients || bucket.ranks > 1}];
  }
  int64_t elements = 0;
  for (const auto& [kind, count] : counts) {
    elements += kind.first * std::min<int64_t>(count, kind.second ? 2 : 1);
  }
  return elements;
}

// Returns the maximum number of message buffers in use at once. A received message is kept until
// the plan computes the weight gradients that need it; sends need two more buffers.
int64_t planned_messages(const pipeline::RankPlan& rank) {
  int64_t held = 0, most = 0;
  std::map<std::pair<int, int>, int64_t> received;  // key: micro-batch and chunk
  for (const Action& action : rank.actions) {
    const Entry& entry = action.entry;
    if (action.kind == Action::Kind::receive) {
      ++received[{entry.micro_batch, entry.chunk}];
      most = std::max(most, ++held);
    } else if (action.kind == Action::Kind::send) {
      most = std::max(most, held + 2);
    } else if (action.kind == Action::Kind::compute && makes_weight_gradient(entry)) {
      held -= std::exchange(received[{entry.micro_batch, entry.chunk}], 0);
    }
  }
  return most;
}

struct PlannedActivations {
  int64_t memory = 0;
  int64_t files = 0;
  int64_t pages = 0;  // maximum bytes of the files that are in memory at once
};

// Returns the bytes of activations of a rank: the sum over its slots, each as large as the largest
// chunk that uses it, and the scratch arena.
PlannedActivations planned_activations(const Model& model, const Profile& profile,
                                       const pipeline::RankPlan& rank,
                                       const pipeline::Placement& placement,
                                       const ReplicaOptions& replica, bool split) {
  std::map<int, PartMemory> parts;  // memory of each chunk
  int64_t scratch = 0, validation = 0, largest = 0;
  const bool in_files = replica.storage.offload.activations();
  for (const int chunk : placement.own_chunks) {
    const UnitRange& units = placement.chunks[static_cast<size_t>(chunk)];
    parts[chunk] = PartPlan(model, profile, replica.runner, units, split, in_files).memory();
    scratch = std::max(scratch, parts[chunk].scratch);
    validation = std::max(validation, parts[chunk].validation);
    largest = std::max(largest, parts[chunk].largest);
  }
  std::vector<int64_t> slots(static_cast<size_t>(rank.slots));
  std::vector<int64_t> files(slots.size());
  for (const Action& action : rank.actions) {
    if (action.kind != Action::Kind::compute) continue;
    const auto at = static_cast<size_t>(action.slot);
    const PartMemory& part = parts[action.entry.chunk];
    slots[at] = std::max(slots[at], part.slot);
    files[at] = std::max(files[at], part.files);
  }
  slots.front() = std::max(slots.front(), validation);
  const auto all = static_cast<int64_t>(slots.size());
  return {std::accumulate(slots.begin(), slots.end(), scratch),
          std::accumulate(files.begin(), files.end(), int64_t{0}), (all + 2) * largest};
}

// Returns the layout options that a replica derives. `owners`: receives this rank's index among the
// owners of each group (negative: not an owner).
LayoutOptions layout_options(const Model& model, const StorageOptions& storage,
                             const pipeline::Placement& placement, const MeshPlace& rank,
                             std::vector<int>& owners) {
  const auto holders = static_cast<int>(placement.holders.size());
  GroupTable table = parameter_groups(model.parameters().specs(), placement.parameters);
  LayoutOptions options{.ranks = {},
                        .bucket_elements = storage.bucket_elements,
                        .first_bucket_elements = storage.first_bucket_elements,
                        .bucket_per_unit = storage.stage == 3,
                        .alignment = storage.alignment,
                        .parameters = placement.parameters,
                        .groups = std::move(table.group_of),
                        .alone = storage.alone};
  for (const AxisSet axes : table.axes) {
    const int ranks = holders * rank.ranks_along(axes);
    options.ranks.push_back(storage.owners_among(ranks));
    owners.push_back(storage.owner(rank.number_along(axes), ranks));
  }
  return options;
}

// Provides the pieces of a layout's owners, which determine the owner that computes each matrix.
class PlannedMatrices : public MatrixExchange {
 public:
  PlannedMatrices(const Layout& layout, const std::vector<ParameterSpec>& specs, int owners,
                  int self)
      : layout_(layout), specs_(specs), owners_(owners), self_(self) {}

  int owners() const override { return owners_; }
  int self() const override { return self_; }
  std::vector<Piece> pieces(int owner) const override {
    require_one_group(layout_);
    return layout_.pieces({owner});
  }
  const ParameterSpec& spec(int parameter) const override {
    return specs_[static_cast<size_t>(parameter)];
  }
  void exchange(std::span<const float>, std::span<const int64_t>, std::span<float>,
                std::span<const int64_t>) override {
    throw Error(ErrorCode::internal, "a plan cannot exchange matrices between ranks");
  }

 private:
  const Layout& layout_;
  const std::vector<ParameterSpec>& specs_;
  int owners_;
  int self_;
};

// Returns the options, completed as a replica completes them.
TrainOptions completed(TrainOptions options, const Optimizer& optimizer) {
  options.replica = with_shards(options.replica);
  options.replica.storage.alignment = optimizer.alignment();
  return options;
}

}  // namespace

MemoryPlan::MemoryPlan(Model& model, const MicroBatch& batch, const TrainOptions& options,
                       int64_t passes)
    : MemoryPlan(
          model, batch, options, passes,
          pipeline::profile_model(
              model, batch, {.dtype = options.replica.storage.dtype, .seed = options.seed}, 1)) {}

MemoryPlan::MemoryPlan(Model& model, const MicroBatch& batch, const TrainOptions& options,
                       int64_t passes, pipeline::Profile profile)
    : model_(model),
      batch_(batch),
      optimizer_(make_optimizer(options.optimizer)),
      options_(completed(options, *optimizer_)),
      passes_(passes),
      profile_(std::move(profile)) {
  const PipelineOptions& pipeline = options.replica.pipeline;
  const int stages = model.parameters().mesh().size(Axis::pipeline);
  pipeline::Plans plans(pipeline.schedule, stages, pipeline.virtual_stages);
  // Without flushes, plans enough steps to reach the maximum number of weight versions.
  const pipeline::Plan& plan = plans.training(passes, plans.flushed() ? 1 : 2 * stages);
  const std::vector<int> cut =
      pipeline.cut.empty() ? pipeline::estimated_cut(model, plans.chunks()) : pipeline.cut;
  for (int stage = 0; stage < stages; ++stage) {
    const pipeline::RankPlan& rank = plan.ranks[static_cast<size_t>(stage)];
    Stage& made = stages_.emplace_back();
    made.placement = make_placement(plans.layout(), model, cut, stage);
    made.versions = rank.versions;
    made.split = plan.schedule.has_split_backward();
    const PlannedActivations activations =
        planned_activations(model, profile_, rank, made.placement, options.replica, made.split);
    made.activations = activations.memory;
    made.activation_files = activations.files;
    made.activation_pages = activations.pages;
    made.messages = stages > 1 ? planned_messages(rank) : 0;
  }
}

int64_t MemoryPlan::logits(int stage) const {
  const Stage& its = stages_[static_cast<size_t>(stage)];
  if (!its.placement.has_loss()) return 0;
  return model_.logits_at_once(batch_, its.split) * bytes_of(options_.replica.storage.dtype);
}

// Returns the number of elements of tied parameters that are used twice on this stage.
int64_t MemoryPlan::shared_elements(const Stage& stage) const {
  int64_t elements = 0;
  for (const SharedUse& use : model_.parameters().shared_uses()) {
    const ParameterSpec& spec = model_.parameters().specs()[static_cast<size_t>(use.parameter)];
    const bool both = stage.placement.has_unit(spec.unit) && stage.placement.has_unit(use.unit);
    if (both) elements += spec.local_count();
  }
  return elements;
}

// Returns the number of gradient elements that deterministic mode sums separately: other ranks'
// micro-batches, the second use of a tied parameter if both uses are on this rank, and partial sums
// over micro-batches.
int64_t MemoryPlan::separate_gradients(const Stage& stage) const {
  const std::vector<ParameterSpec>& specs = model_.parameters().specs();
  const int64_t levels = GradientTree::levels(passes_);
  int64_t elements = 0;
  for (const int parameter : stage.placement.parameters) {
    const ParameterSpec& spec = specs[static_cast<size_t>(parameter)];
    const int64_t sources = GradientSums::sources(spec);
    elements += spec.local_count() * (sources * (1 + levels) - 1);
  }
  if (passes_ > 1) elements += (1 + levels) * shared_elements(stage);
  return elements;
}

int64_t MemoryPlan::add_storage(const Stage& stage, const MeshPlace& rank, MemoryReport& report,
                                StateBytes& states) const {
  StorageBytes& bytes = report.storage;
  int64_t& rows = report.compression;
  const ReplicaOptions& replica = options_.replica;
  const bool one_order = stage.placement.holders.size() == 1;
  const bool one_pass = passes_ == 1 && one_order;
  StorageOptions storage = replica.storage;
  storage.one_pass = one_pass;
  storage.parameters = stage.placement.parameters;
  storage.alone = parameters_of(factor_layers(
      model_, {replica.factors.layers, static_cast<int64_t>(options_.batch)}, storage,
      static_cast<int>(stage.placement.holders.size()) * rank.ranks_along(kBatchAxes)));
  const std::vector<ParameterSpec>& specs = model_.parameters().specs();
  std::vector<int> owners;
  const Layout layout =
      make_layout(specs, layout_options(model_, storage, stage.placement, rank, owners));
  int64_t used = 0, owned = 0;
  for (const Slot& slot : layout.slots) used += slot.count;
  const bool owns = owners.front() >= 0;
  if (owns) {
    const std::vector<Piece> pieces = layout.pieces(owners);
    states.whole = whole_state_bytes(layout, pieces, owners.front(), states.two_wholes);
    for (const Piece& piece : pieces) {
      const ParameterSpec& spec = specs[static_cast<size_t>(piece.parameter)];
      owned += piece.count;
      states.each +=
          state_floats(optimizer_->state_format(spec), piece.count) * bytes_of(DType::f32);
    }
  }
  const int64_t owned_size = owns ? layout.owned_size : 0;

  const auto add = [&](int64_t& kind, bool whole, DType dtype, bool in_file) {
    if (in_file) {
      bytes.files += owned_size * bytes_of(dtype);
      return;
    }
    kind += (whole ? used : owned) * bytes_of(dtype);
    bytes.padding += (whole ? layout.size - used : owned_size - owned) * bytes_of(dtype);
  };
  const bool masters =
      (storage.dtype != DType::f32 && !replica.without_masters()) || storage.separate_masters;
  const DType gradients = one_pass ? storage.dtype : DType::f32;
  const bool offloads_values = storage.stage == 3 && storage.offload.parameters();
  add(bytes.parameters, storage.stage < 3, storage.dtype, offloads_values);
  const bool whole_gradients =
      storage.stage < 2 || !(one_pass || (one_order && shards_sums(replica)));
  const bool offloads_gradients = !whole_gradients && storage.offload.optimizer();
  add(bytes.gradients, whole_gradients, gradients, offloads_gradients);
  if (masters) add(bytes.masters, false, DType::f32, storage.offload.optimizer());
  if (settings().get_bool("TUTTI_DETERMINISTIC")) {
    bytes.gradients += separate_gradients(stage) * bytes_of(gradients);
    if (one_pass) bytes.gathered += shared_elements(stage) * bytes_of(gradients);
  }
  if (storage.stage == 3)
    bytes.gathered += planned_buckets(layout, false) * bytes_of(storage.dtype);
  if (!whole_gradients) bytes.gathered += planned_buckets(layout, true) * bytes_of(gradients);
  for (const auto& joined : stage.placement.joined) {
    const ParameterSpec& spec = specs[static_cast<size_t>(joined.parameter)];
    bytes.gathered += spec.local_count() * bytes_of(gradients);
  }
  bytes.gathered += (stage.versions - 1) * bytes.parameters;  // older versions of the weights
  if (replica.sync.has_servers() && owns) {
    const Roles roles = roles_of(replica.sync, rank.ranks_along(kBatchAxes));
    rows = (replica.sync.bound + 1) * roles.workers() * owned_size * bytes_of(gradients);
    if (storage.dtype != DType::f32) rows += owned_size * bytes_of(storage.dtype);
  }
  rows += own_writes() * layout.size * bytes_of(DType::f32);
  report.optimizer = states.each * std::ssize(optimizer_->state_names()) + states.whole;
  report.files = bytes.files + stage.activation_files;
  if (storage.offload.optimizer()) report.files += std::exchange(report.optimizer, 0);
  report.pages = most_in_memory(layout, storage.offload,
                                {.files = report.files,
                                 .of_value = offloads_values ? bytes_of(storage.dtype) : 0,
                                 .of_gradient = offloads_gradients ? bytes_of(gradients) : 0,
                                 .wholes = storage.offload.optimizer() ? states.two_wholes : 0,
                                 .activations = stage.activation_pages});
  return owned;
}

// Returns the bytes of the states of parameters that the owner with index `self` computes as whole
// matrices. `of_two`: receives the bytes for the two largest of these parameters.
int64_t MemoryPlan::whole_state_bytes(const Layout& layout, std::span<const Piece> own, int self,
                                      int64_t& of_two) const {
  const std::vector<ParameterSpec>& specs = model_.parameters().specs();
  if (layout.buckets.empty()) return 0;
  const PlannedMatrices matrices(layout, specs, layout.buckets.front().ranks, self);
  std::vector<OwnedPiece> pieces;
  for (const Piece& piece : own) {
    pieces.push_back({.piece = piece, .spec = &matrices.spec(piece.parameter)});
  }
  const WholeStates states = whole_states_here(
      *optimizer_, specs, static_cast<int>(model_.units().size()), pieces, &matrices);
  of_two = states.floats_of_two() * bytes_of(DType::f32);
  return states.floats() * bytes_of(DType::f32);
}

// Returns the maximum number of updates that a worker of ssp keeps until servers have them.
int64_t MemoryPlan::own_writes() const {
  const ReplicaOptions& replica = options_.replica;
  const bool keeps = replica.sync.bound > 0 && !replica.clip &&
                     replica.storage.dtype == DType::f32 && optimizer_->adds_gradients();
  if (!keeps) return 0;
  const uint64_t steps = (options_.samples + options_.batch - 1) / options_.batch;
  const auto of_a_stretch = static_cast<int64_t>(next_flush(options_, 1, steps));
  return std::min(replica.sync.bound + 1, of_a_stretch);
}

MemoryReport MemoryPlan::of(const MeshPlace& rank) const {
  const Stage& stage = stages_[static_cast<size_t>(rank.place(Axis::pipeline))];
  const ReplicaOptions& replica = options_.replica;
  MemoryReport report;
  StateBytes states;
  const int64_t owned = add_storage(stage, rank, report, states);
  if (options_.async_checkpoint) {
    const DType values = replica.without_masters() ? replica.storage.dtype : DType::f32;
    report.copies = states.each * std::ssize(optimizer_->state_names()) + states.whole +
                    owned * bytes_of(values);
    // if values differ between ranks, each rank's own values are copied as well
    if (replica.sync.has_own_values()) report.copies *= 2;
  }
  const int64_t copies = copies_of_values(replica.sync);
  report.compression += copies * owned * bytes_of(DType::f32);
  report.activations = stage.activations;
  report.boundaries = stage.messages * profile_.layers.front().activation_bytes +
                      model_.message_bytes(batch_, replica.storage.dtype);
  return report;
}

int64_t total(const MemoryReport& memory) {
  return memory.storage.parameters + memory.storage.gradients + memory.storage.masters +
         memory.storage.padding + memory.storage.gathered + memory.optimizer + memory.activations +
         memory.boundaries + memory.compression + memory.copies + memory.pages;
}

}  // namespace tutti::training
