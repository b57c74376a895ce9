// The options of `tutti simulate train`, without and with --sync.
#include <algorithm>
#include <string>

#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/simulate/setup.h"

namespace tutti::tool {

void add_train_options(Command command, SimulateOptions& o) {
  constexpr const char* kGroup = "A training step (train)";
  const auto add = [&](const char* names, auto& value, const char* meaning) {
    return command.add_option(names, value, meaning).group(kGroup);
  };
  add("--pp", o.stages,
      "number of pipeline stages; the ranks not used by --pp and --tp are data-parallel")
      .between(1, 65536)
      .show_default();
  add("--tp", o.tensor, "number of tensor-parallel ranks per stage (consecutive ranks)")
      .between(1, 1024)
      .show_default();
  command
      .add_flag("--sp", o.shares_rows,
                "sequence parallelism: tensor-parallel ranks use reduce-scatter and all-gather "
                "instead of all-reduce")
      .group(kGroup);
  add("--blocks", o.blocks,
      "with --tp: number of blocks per chunk; each block reduces activations twice in"
      " forward and twice in backward")
      .between(1, 1024)
      .show_default();
  add("--schedule", o.schedule, "pipeline schedule: see `tutti pipeline --list`")
      .type_name("NAME")
      .show_default();
  add("--virtual", o.virtual_stages,
      "number of model chunks per rank, for --schedule interleaved (default: 2)")
      .between(1, 1024);
  add("--micro-batches", o.micro_batches, "number of micro-batches per data-parallel rank")
      .between(1, 1 << 20)
      .show_default();
  add("--forward-us", o.forward_us,
      "forward time of a micro-batch through a chunk, in microseconds: one value, or "
      "one per chunk")
      .type_name("US,..")
      .separated_by_commas();
  add("--backward-us", o.backward_us,
      "full backward time of a micro-batch through a chunk, in microseconds: one value, or one per "
      "chunk")
      .type_name("US,..")
      .separated_by_commas();
  add("--backward-weight-us", o.backward_weight_us,
      "part of --backward-us that computes weight gradients, for schedules that split the backward "
      "(default: half)")
      .type_name("US,..")
      .separated_by_commas();
  add("--activation-bytes", o.activation_bytes,
      "size in bytes of the activations that are sent between two chunks for each micro-batch")
      .type_name("BYTES");
  add("--gradient-bytes", o.gradient_bytes,
      "size in bytes of the gradients of a chunk's parameters")
      .type_name("BYTES");
  add("--bucket-bytes", o.bucket_bytes,
      "size in bytes of a gradient bucket, which is reduced in one call")
      .type_name("BYTES")
      .show_default();
  add("--zero", o.zero,
      "ZeRO stage. 0: gradients are all-reduced; 1 and 2: gradients are reduce-scattered, and "
      "parameters are gathered before the first forward of a chunk; 3: as 2, but parameters are "
      "gathered before each forward and each backward")
      .between(0, 3)
      .show_default();
  add("--optimizer-us", o.optimizer_us,
      "time in microseconds that a rank's optimizer takes after gradients are reduced (default: "
      "0)");
  command.add_flag("--recompute", o.recomputes, "recompute the chunk's forward in backward")
      .group(kGroup);
  add("--sync", o.sync,
      "compare synchronization methods by their time to --updates: allreduce, ps[:S], ssp:B[:S], "
      "async[:S], local:K, diloco:H, gossip:GRAPH, sgp, adpsgd, easgd:K, fedavg:K, fedprox:K,MU, "
      "fedadam:K")
      .type_name("WAY,..")
      .separated_by_commas();
  add("--updates", o.updates, "with --sync: number of model updates")
      .between(1, 1'000'000)
      .show_default();
}

namespace {

// Throws for options that --sync does not support: each rank has the whole model, and updates take
// no time.
void refuse_what_no_way_has(const Command& command) {
  for (const char* option :
       {"--pp", "--tp", "--sp", "--blocks", "--schedule", "--virtual", "--backward-weight-us",
        "--activation-bytes", "--bucket-bytes", "--zero", "--optimizer-us"}) {
    if (command.count(option) > 0) {
      throw UsageError(cat("--sync excludes ", option, ": all ranks are data-parallel"));
    }
  }
}

}  // namespace

void check_train_options(const Command& command, const SimulateOptions& o) {
  const bool train = o.what == kTrain;
  for (const char* option :
       {"--pp", "--tp", "--sp", "--blocks", "--schedule", "--virtual", "--micro-batches",
        "--forward-us", "--backward-us", "--backward-weight-us", "--activation-bytes",
        "--gradient-bytes", "--bucket-bytes", "--zero", "--optimizer-us", "--recompute", "--sync",
        "--updates"}) {
    if (!train && command.count(option) > 0) {
      throw UsageError(cat(option, " is an option of `tutti simulate train`, not of ", o.what));
    }
  }
  const bool slow = std::ranges::any_of(
      o.stragglers, [](const std::string& text) { return text.find(":x") != text.npos; });
  if (o.sync.empty() && slow) {
    throw UsageError(
        "--straggler RANK:xF requires `tutti simulate train --sync`; otherwise use RANK:US");
  }
  if (!train) return;
  if (!o.sync.empty()) refuse_what_no_way_has(command);
  if (o.sync.empty() && command.count("--updates") > 0) {
    throw UsageError("--updates has no effect without --sync");
  }
  for (const char* option : {"--sp", "--blocks"}) {
    if (o.tensor == 1 && command.count(option) > 0) {
      throw UsageError(cat(option, " has no effect without --tp"));
    }
  }
  for (const char* needed : {"--forward-us", "--backward-us"}) {
    if (command.count(needed) == 0) throw UsageError(cat("train requires ", needed));
  }
}

}  // namespace tutti::tool
