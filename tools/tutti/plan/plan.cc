// tutti plan: finds the layout of a model's training on a cluster and predicts its cost.
#include <array>
#include <memory>
#include <string>

#include "base/text.h"
#include "tools/tutti/clusters.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/exclude.h"
#include "tools/tutti/plan/faces.h"
#include "training/planner/model_shape.h"

namespace tutti::tool {

namespace {

constexpr char kFooter[] =
    "A table for --predict and --fit has one run per row, with the columns gpu, gpus, model (or "
    "layers,\n"
    "hidden, ffn, heads, vocab), seq, tp, pp, dp, mbs, gbs, and the measurement: step_s, tok_s_gpu "
    "or\n"
    "tflops_gpu. --fit uses the rows whose `split` is calibrate.\n"
    "\n"
    "Examples:\n"
    "  tutti plan --model llama3-70b --cluster dgx-h100:16 --global-batch 512 --seq 8192\n"
    "  tutti plan --model gpt3-175b --cluster '8xA100 x 128, NVLink 300, IB 8x25' --global-batch "
    "1536 \\\n"
    "    --seq 2048 --tp 8 --why\n"
    "  tutti plan --predict runs.csv --json predicted.json\n"
    "  tutti plan --fit runs.csv --json ours.json; tutti plan ... --efficiencies ours.json\n"
    "  tutti plan --budget 4.3e23\n"
    "  tutti plan --memory --model gpt2-xl --global-batch 32 --seq 1024 -n 64";

void add_layouts(Command& command, PlanOptions& o) {
  command.add_option("--model", o.model,
                     "model: a name (llama3-70b), a Hugging Face config.json, or a configuration "
                     "of `tutti train`");
  command
      .add_option("--cluster", o.cluster,
                  "GPU cluster, given by name, description or file (see below), by a topology "
                  "file, or by a network of `tutti simulate`. localhost: the ranks run on this "
                  "host's processors, and the layers are timed on this host")
      .type_name("CLUSTER");
  command
      .add_option("-n,--gpus,--ranks", o.gpus,
                  "number of GPUs to use; on localhost the number of ranks (default: all cores)")
      .between(1, 1 << 20);
  command.add_option("--gpu", o.gpu,
                     "GPU model, if --cluster is a topology file or a network of `tutti "
                     "simulate` (default: the one in the file)");
  command.add_option("--global-batch", o.global_batch, "global batch size in sequences")
      .between(1, 1 << 30);
  command.add_option("--seq", o.sequence, "sequence length in tokens").between(1, 1 << 30);
  command
      .add_option("--precision", o.precision,
                  "data type of matrix multiplications: bf16, f16, fp8 or f32 (default: bf16; on "
                  "localhost: f32)")
      .one_of({"bf16", "f16", "fp8", "f32"});
  command
      .add_option("--software", o.software,
                  "training framework whose measured efficiencies are assumed")
      .one_of({"megatron", "megatron-2021", "deepspeed", "fsdp", "fsdp-2023", "fsdp-compiled"})
      .show_default();
  constexpr const char* kGroup = "Fixed axes (the others are searched)";
  const auto add = [&](const char* option, auto& value, const char* meaning) {
    return command.add_option(option, value, meaning).group(kGroup);
  };
  add("--dp", o.constraints.data, "number of data-parallel ranks").between(1, 1 << 20);
  add("--tp", o.constraints.tensor, "number of tensor-parallel ranks").between(1, 1 << 20);
  add("--pp", o.constraints.stages, "number of pipeline stages").between(1, 1 << 20);
  add("--cp", o.constraints.context, "number of context-parallel ranks").between(1, 1 << 20);
  add("--ep", o.constraints.expert, "number of expert-parallel ranks").between(1, 1 << 20);
  add("--virtual,--vp", o.constraints.virtual_stages,
      "virtual pipeline stages: model chunks per stage")
      .between(1, 1 << 20);
  add("--zero", o.constraints.zero, "ZeRO stage, 0 to 3").between(0, 3);
  add("--micro-batch", o.constraints.micro_batch, "sequences per micro-batch").between(1, 1 << 20);
  add("--recompute", o.recompute, "activation recomputation: none, selective or full")
      .one_of({"none", "selective", "full"});
  add("--max-memory", o.max_memory,
      "maximum memory per GPU in bytes (default: 90% of the GPU's memory); on localhost maximum "
      "memory per rank (default: the rank's share of the host's free memory)")
      .type_name("BYTES");
  add("--min-mfu", o.min_mfu,
      "smallest acceptable model FLOPs utilization, in percent (default: 0)")
      .between(0, 100);
  constexpr const char* kQuestions = "Questions";
  command
      .add_option("--tokens", o.tokens,
                  "number of training tokens (2T); also prints the training time in days")
      .type_name("TOKENS")
      .group(kQuestions);
  command
      .add_option(
          "--days", o.days,
          "with --tokens: find the smallest number of hosts that finishes within this many days")
      .group(kQuestions);
  command
      .add_option("--largest", o.largest,
                  "find the largest micro-batch, or the longest sequence (doubled from --seq), "
                  "that fits in memory")
      .one_of({"micro-batch", "sequence"})
      .group(kQuestions);
  command
      .add_flag("--memory", o.memory,
                "print the memory that --model needs, by data type and kind, without searching "
                "layouts. --model may also be a number of parameters (7.5B). With -n, also print "
                "the memory per rank for each ZeRO stage; with --global-batch and --seq, include "
                "activations")
      .group(kQuestions);
  command.add_option("--show", o.show, "number of layouts to print").between(1, 200).show_default();
  command.add_flag(
      "--why", o.why,
      "explain the time and memory of the best layout, and compare it with the best layout on "
      "another mesh");
  command.add_option("--plot", o.plot, "draw the timeline and memory of the best layout")
      .type_name("FILE.svg");
}

// Throws if more than one of the options is given that select what `tutti plan` computes.
void refuse_several(const Command& command) {
  int faces = 0;
  for (const char* face : {"--predict", "--fit", "--budget", "--fit-laws", "--model"}) {
    faces += command.count(face) > 0 ? 1 : 0;
  }
  if (faces > 1) throw UsageError("give one of --model, --predict, --fit, --budget and --fit-laws");
}

}  // namespace

void add_plan(CommandLine& line) {
  const auto o = std::make_shared<PlanOptions>();
  Command command =
      line.add("plan", "find the fastest parallel layout for training a model on a cluster");
  add_layouts(command, *o);
  command
      .add_option("--predict", o->predict,
                  "predict the step time and memory of each run in this table")
      .type_name("CSV");
  command
      .add_option("--fit", o->fit,
                  "fit the efficiencies that predictions use to the runs in this table, and write "
                  "them to the --json file")
      .type_name("CSV");
  command
      .add_option("--efficiencies", o->efficiencies,
                  "read efficiencies from this file, which --fit wrote (default: built-in values)")
      .type_name("FILE");
  command
      .add_option("--budget", o->budget,
                  "compute budget in floating-point operations; prints the optimal model size and "
                  "number of "
                  "training tokens")
      .type_name("FLOPS");
  command.add_option(
      "--laws", o->laws,
      "scaling laws that --budget uses: chinchilla, kaplan, or a file written by --fit-laws");
  command
      .add_option(
          "--fit-laws", o->fit_laws,
          "fit a scaling law to this table of runs (N, D, L) and write it to the --json file")
      .type_name("CSV");
  command.add_option("--json", o->json, "write the results as JSON to this file").type_name("FILE");
  command.footer(cat(kClusterHelp, '\n', kFooter));
  command.runs([command, o] {
    refuse_several(command);
    if (!o->predict.empty()) return predict_runs(*o);
    if (!o->fit.empty()) {
      if (o->json.empty()) throw UsageError("--fit requires --json FILE for its results");
      return fit_runs(*o);
    }
    if (!o->budget.empty()) return plan_budget(*o);
    if (!o->fit_laws.empty()) return fit_laws(*o);
    if (o->memory) {
      exclude(command, "--memory",
              {"--cluster", "--tokens", "--days", "--largest", "--plot", "--why", "--show"});
      return plan_memory(*o);
    }
    if (o->cluster == kThisHost && (o->days || !o->largest.empty())) {
      throw UsageError(
          cat("--days and --largest require a GPU cluster, not --cluster ", kThisHost));
    }
    if (o->days && o->tokens.empty()) throw UsageError("--days requires --tokens");
    if (o->days) exclude(command, "--days", {"--largest"});
    if (o->days || !o->largest.empty()) {
      exclude(command, o->days ? "--days" : "--largest", {"--plot", "--why", "--show"});
      return answer_question(*o);
    }
    return plan_layouts(*o);
  });
}

}  // namespace tutti::tool
