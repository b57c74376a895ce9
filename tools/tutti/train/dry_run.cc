#include "tools/tutti/train/dry_run.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tools/tutti/train/files.h"
#include "tools/tutti/train/report.h"
#include "training/models/decoder.h"
#include "training/run/feed.h"
#include "training/run/memory_plan.h"

namespace tutti::tool {
namespace {

using training::RunOptions;

// The planned memory of one rank.
struct RankMemory {
  int rank = 0;
  training::MemoryReport memory;
  int64_t logits = 0;  // bytes of logits, which are part of the activations
};

// Returns the memory as JSON. Master weights of 16-bit parameters count as optimizer state, as in
// ZeRO (Rajbhandari et al. 2020).
Json json_of(const RankMemory& planned) {
  const training::MemoryReport& memory = planned.memory;
  return {{"rank", planned.rank},
          {"parameters", memory.storage.parameters},
          {"gradients", memory.storage.gradients},
          {"optimizer", memory.optimizer + memory.storage.masters},
          {"activations", memory.activations - planned.logits},
          {"logits", planned.logits},
          {"buffers", memory.storage.padding + memory.storage.gathered + memory.boundaries +
                          memory.compression + memory.copies},
          {"pages", memory.pages},
          {"files", memory.files}};
}

// The memory of every rank of the run, in rank order, and the activations that a decoder block
// keeps on the first rank (nothing for other models).
struct PlannedRun {
  std::vector<RankMemory> ranks;
  std::optional<training::BlockActivations> block;
};

PlannedRun planned_run(const RunOptions& settled, const training::Batch& batch, int ranks,
                       int64_t passes) {
  using training::Axis;
  const training::MeshPlace mesh = training::mesh_place(settled.mesh, ranks);
  const int context = mesh.size(Axis::context);
  // Ranks at the same places along these axes have models of the same shapes.
  const int models = mesh.ranks_along({Axis::tensor, Axis::context, Axis::expert});
  PlannedRun planned{.ranks = std::vector<RankMemory>(static_cast<size_t>(ranks)), .block = {}};
  std::vector<RankMemory>& all = planned.ranks;
  // key: shares; value: the first rank with these shares
  std::map<std::vector<int64_t>, int> known;
  for (int first = 0; first < models; ++first) {
    const training::MeshPlace place = mesh.of_rank(first);
    const std::unique_ptr<training::Model> model =
        training::make_model(settled.model, training::model_context(settled, place));
    training::Batch part = batch;
    if (context > 1) part.deal_out(model->attention_window(), place.place(Axis::context), context);
    const training::MicroBatch own = part.view();
    const auto* const decoder = dynamic_cast<const training::Decoder*>(model.get());
    if (first == 0 && decoder != nullptr) {
      planned.block =
          decoder->block_activations(batch.samples, settled.training.replica.storage.dtype);
    }
    std::vector<int64_t> has;
    for (const auto& spec : model->parameters().specs()) has.push_back(spec.local_count());
    for (const auto& unit : model->units()) {
      has.push_back(unit->output_shape().rows_at(place, own));
      has.push_back(unit->output_shape().cols);
    }
    has.push_back(model->message_bytes(own, settled.training.replica.storage.dtype));
    if (part.partition != nullptr) {
      for (int rank = 0; rank < context; ++rank) {
        has.push_back(part.partition->seen_of(rank).count);
        has.push_back(part.partition->seen_by(rank).count);
      }
    }
    const int same = known.try_emplace(has, first).first->second;
    std::optional<training::MemoryPlan> plan;
    if (same == first) plan.emplace(*model, own, settled.training, passes);
    for (int rank = first; rank < ranks; rank += models) {
      const training::MeshPlace at = mesh.of_rank(rank);
      all[static_cast<size_t>(rank)] =
          plan ? RankMemory{rank, plan->of(at), plan->logits(at.place(Axis::pipeline))}
               : all[static_cast<size_t>(rank - first + same)];
      all[static_cast<size_t>(rank)].rank = rank;
    }
  }
  return planned;
}

// Prints the activations by formula, for comparison with publications.
void print_block(const training::BlockActivations& block) {
  std::printf(
      "a block keeps    %s per micro-batch without recomputation; Megatron-LM %s in 16 bits\n",
      readable_bytes(static_cast<int64_t>(block.kept)).c_str(),
      readable_bytes(static_cast<int64_t>(block.megatron)).c_str());
}

}  // namespace

int dry_run(const RunOptions& settled, const training::LoadedData& data, int ranks,
            const std::string& json) {
  const training::TrainOptions& training = settled.training;
  const training::MeshPlace mesh = training::mesh_place(settled.mesh, ranks);
  const uint64_t count = std::min(training.micro_batch, training.batch);
  training::Batch batch;
  for (uint64_t example = 0; example < count; ++example) {
    data.sets.front()->add(example % data.sets.front()->size(), 0, batch);
  }
  const training::Feed feed(data.views(), {.batch = training.batch,
                                           .micro_batch = training.micro_batch,
                                           .samples = training.samples,
                                           .seed = training.seed,
                                           .ranks = mesh.ranks_along(training::kSampleAxes),
                                           .weights = training.data_weights});
  const PlannedRun planned =
      planned_run(settled, batch, ranks, static_cast<int64_t>(feed.passes()));
  const std::vector<RankMemory>& all = planned.ranks;
  const RankMemory& most =
      *std::ranges::max_element(all, {}, [](const RankMemory& rank) { return total(rank.memory); });
  Json memory = Json::array();
  for (const RankMemory& rank : all) memory.push_back(json_of(rank));
  const Json line = {{"ranks", ranks},
                     {"configuration", training.configuration},
                     {"memory", memory},
                     {"memory_total", total(most.memory)}};
  std::printf("%s\n", training.configuration.dump(2).c_str());
  std::printf("ranks            %d\n", ranks);
  print_memory(most.memory, 0, most.rank);
  if (planned.block) print_block(*planned.block);
  if (most.logits > 0) {
    std::printf("logits           %s of the activations\n", readable_bytes(most.logits).c_str());
  }
  if (training.replica.storage.stage >= 2 && feed.passes() > 1 &&
      !training::shards_sums(training.replica)) {
    std::printf(
        "gradients         not sharded: deterministic mode sums several micro-batches as in every "
        "ZeRO stage\n");
  }
  std::printf("total            %s on rank %d, the largest, planned; nothing was trained\n",
              readable_bytes(total(most.memory)).c_str(), most.rank);
  TrainFiles({.json = json}, {}, training.resume ? kWholeFile : std::nullopt).write(0, line);
  return 0;
}

}  // namespace tutti::tool
