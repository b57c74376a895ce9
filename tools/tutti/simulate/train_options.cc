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
  add("--pp", o.stages, "stages of the pipeline; what --pp and --tp leave is data-parallel")
      .between(1, 65536)
      .show_default();
  add("--tp", o.tensor, "tensor ranks, side by side, that share the work of each stage")
      .between(1, 1024)
      .show_default();
  command
      .add_flag("--sp", o.shares_rows,
                "tensor ranks share the rows between blocks: they reduce-scatter and gather, in "
                "place of all-reduces")
      .group(kGroup);
  add("--blocks", o.blocks,
      "with --tp: blocks of layers in a chunk; each sums activations twice forward, twice backward")
      .between(1, 1024)
      .show_default();
  add("--schedule", o.schedule, "pipeline schedule: see `tutti pipeline --list`")
      .type_name("NAME")
      .show_default();
  add("--virtual", o.virtual_stages, "chunks of the model on each rank (default: interleaved 2)")
      .between(1, 1024);
  add("--micro-batches", o.micro_batches, "of each data-parallel rank")
      .between(1, 1 << 20)
      .show_default();
  add("--forward-us", o.forward_us, "a micro-batch's forward through a chunk: one time, or each's")
      .type_name("US,..")
      .separated_by_commas();
  add("--backward-us", o.backward_us, "its backward, whole")
      .type_name("US,..")
      .separated_by_commas();
  add("--backward-weight-us", o.backward_weight_us,
      "of that, for weights, where a schedule takes them apart (default: half)")
      .type_name("US,..")
      .separated_by_commas();
  add("--activation-bytes", o.activation_bytes, "of a micro-batch between two chunks")
      .type_name("BYTES");
  add("--gradient-bytes", o.gradient_bytes, "of a chunk's parameters").type_name("BYTES");
  add("--bucket-bytes", o.bucket_bytes, "of gradients that are summed in one call")
      .type_name("BYTES")
      .show_default();
  add("--zero", o.zero,
      "ZeRO's stage: from 1 on gradients are reduce-scattered, and parameters gathered before the "
      "first forward of a chunk; by 3 before each forward and each backward")
      .between(0, 3)
      .show_default();
  add("--optimizer-us", o.optimizer_us, "of a rank, after its gradients are summed");
  command.add_flag("--recompute", o.recomputes, "a backward computes the chunk's forward once more")
      .group(kGroup);
  add("--sync", o.sync,
      "time to --updates for each way in which data-parallel ranks keep together: allreduce, "
      "ps[:S], ssp:B[:S], async[:S], local:K, diloco:H, gossip:GRAPH, sgp, adpsgd, "
      "easgd:K, fedavg:K, fedprox:K,MU, fedadam:K")
      .type_name("WAY,..")
      .separated_by_commas();
  add("--updates", o.updates, "with --sync: updates of the model")
      .between(1, 1'000'000)
      .show_default();
}

namespace {

// With --sync each rank has the whole model, and its updates take no time.
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
      throw UsageError(cat(option, " is of `tutti simulate train`, not of ", o.what));
    }
  }
  const bool slow = std::ranges::any_of(
      o.stragglers, [](const std::string& text) { return text.find(":x") != text.npos; });
  if (o.sync.empty() && slow) {
    throw UsageError("--straggler RANK:xF is of `tutti simulate train --sync`; without, RANK:US");
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
