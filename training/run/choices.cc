// Implements the functions of train_options.h: hooks, checks and values that the options determine.
#include <algorithm>

#include "base/error.h"
#include "training/parallel/hooks/block_compression.h"
#include "training/parallel/hooks/half_compression.h"
#include "training/parallel/hooks/one_bit_adam.h"
#include "training/parallel/hooks/powersgd.h"
#include "training/parallel/hooks/selection.h"
#include "training/parallel/hooks/top_k.h"
#include "training/parallel/hooks/warm_up.h"
#include "training/run/train_options.h"

namespace tutti::training {

namespace {

std::unique_ptr<CommunicationHook> make_compression(const TrainOptions& options,
                                                    const std::vector<ParameterSpec>& specs,
                                                    const Layout& layout) {
  const auto in_blocks = [&](BlockFormat format) {
    return std::make_unique<BlockCompression>(format, layout, specs);
  };
  switch (options.compression) {
    case Compression::none:
      return nullptr;
    case Compression::bf16:
      return std::make_unique<HalfCompression>(DType::bf16);
    case Compression::f16:
      return std::make_unique<HalfCompression>(DType::f16);
    case Compression::powersgd:
      return std::make_unique<PowerSgd>(
          layout, specs, PowerSgdOptions{.rank = options.compression_rank, .seed = options.seed});
    case Compression::topk:
      return std::make_unique<TopK>(options.compression_fraction, layout, specs);
    case Compression::mx8:
      return in_blocks(BlockFormat::mx8);
    case Compression::mx4:
      return in_blocks(BlockFormat::mx4);
    case Compression::int8:
      return in_blocks(BlockFormat::int8);
    case Compression::sign:
      return in_blocks(BlockFormat::sign);
    case Compression::onebit_adam:
      return std::make_unique<OneBitAdam>(static_cast<int64_t>(options.compression_warmup),
                                          options.optimizer.value("beta1", 0.9), layout, specs);
  }
  throw Error(ErrorCode::internal, "unknown compression");
}

}  // namespace

std::unique_ptr<CommunicationHook> make_hook(const TrainOptions& options, Model& model,
                                             const Layout& layout) {
  const std::vector<ParameterSpec>& specs = model.parameters().specs();
  const auto make = [&](const Layout& its) {
    std::unique_ptr<CommunicationHook> hook = make_compression(options, specs, its);
    const bool warms_up =
        options.compression_warmup > 0 && options.compression != Compression::onebit_adam;
    if (!warms_up) return hook;
    return std::unique_ptr<CommunicationHook>(std::make_unique<WarmUp>(
        static_cast<int64_t>(options.compression_warmup), std::move(hook)));
  };
  if (options.compression == Compression::none) return nullptr;
  if (options.compression_only == "*") return make(layout);
  return std::make_unique<Selection>(options.compression_only, layout, specs, make);
}

void check_clients(const TrainOptions& options) {
  if (options.labels_per_client == 0 || options.replica.sync.has_own_values()) return;
  throw Error(ErrorCode::invalid_argument, "ranks that reduce gradients cannot have separate data",
              {.where = "--labels-per-client",
               .remedy = "use --sync fedavg:K or another method with local updates"});
}

ReplicaOptions replica_options(ReplicaOptions options, const Feed& feed) {
  options.passes = static_cast<int64_t>(feed.passes());
  options.factors.samples = static_cast<int64_t>(feed.batch());
  return options;
}

uint64_t next_flush(const TrainOptions& options, uint64_t step, uint64_t steps) {
  const std::string& schedule = options.replica.pipeline.schedule;
  const bool flushes_each =
      pipeline::schedule_named(schedule).updates == pipeline::Updates::flushed;
  if (flushes_each && !reports_late(options.replica)) return step;
  // Results of steps are exchanged at a flush; until then their data stay in memory, which limits
  // the number of steps.
  constexpr uint64_t kMostSteps = 1024;
  const uint64_t flush_every =
      options.flush_every == 0 ? kMostSteps : std::min(options.flush_every, kMostSteps);
  uint64_t last = steps;
  for (const uint64_t every : {flush_every, options.validate_every, options.checkpoint_every}) {
    // Steps are counted from 1, so a multiple of `every` is the last step of a stretch.
    if (every != 0) last = std::min(last, (step + every - 1) / every * every);
  }
  return last;
}

}  // namespace tutti::training
