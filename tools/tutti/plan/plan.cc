// tutti plan: how to lay a model's training out on a cluster, and what it will take.
#include <array>
#include <memory>
#include <string>

#include "base/text.h"
#include "tools/tutti/clusters.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/plan/faces.h"
#include "training/planner/model_shape.h"

namespace tutti::tool {

namespace {

constexpr char kFooter[] =
    "A table for --predict and --fit has a run a row: gpu, gpus, model (or layers, hidden, ffn, "
    "heads,\nvocab), seq, tp, pp, dp, mbs, gbs, and what was measured: step_s, tok_s_gpu or "
    "tflops_gpu; --fit uses\nthe rows whose `split` is calibrate.\n\n"
    "Examples:\n"
    "  tutti plan --model llama3-70b --cluster dgx-h100:16 --global-batch 512 --seq 8192\n"
    "  tutti plan --model gpt3-175b --cluster '8xA100 x 128, NVLink 300, IB 8x25' --global-batch "
    "1536 \\\n    --seq 2048 --tp 8 --why\n"
    "  tutti plan --predict runs.csv --json predicted.json\n"
    "  tutti plan --fit runs.csv --json ours.json; tutti plan ... --efficiencies ours.json\n"
    "  tutti plan --budget 4.3e23\n"
    "  tutti plan --memory --model gpt2-xl --global-batch 32 --seq 1024 -n 64";

void add_layouts(Command& command, PlanOptions& o) {
  command.add_option("--model", o.model,
                     "a name (llama3-70b), a config.json of Hugging Face or a configuration of "
                     "`tutti train`");
  command
      .add_option("--cluster", o.cluster,
                  "a cluster of GPUs: a name, a line or a file (see below), a topology file or a "
                  "network of `tutti simulate`; or localhost: ranks on this host's processors, by "
                  "what the model's layers take here")
      .type_name("CLUSTER");
  command
      .add_option("-n,--gpus,--ranks", o.gpus,
                  "number of GPUs of the cluster to use; on localhost ranks (default: its cores)")
      .between(1, 1 << 20);
  command.add_option("--gpu", o.gpu,
                     "name of the GPUs of a --cluster that is a topology file or a "
                     "network of `tutti simulate` (default: as the file tells)");
  command.add_option("--global-batch", o.global_batch, "sequences a step").between(1, 1 << 30);
  command.add_option("--seq", o.sequence, "tokens of a sequence").between(1, 1 << 30);
  command
      .add_option("--precision", o.precision,
                  "type of matrix products (default: bf16; on localhost f32)")
      .one_of({"bf16", "f16", "fp8", "f32"});
  command.add_option("--software", o.software, "the program whose efficiencies are assumed")
      .one_of({"megatron", "megatron-2021", "deepspeed", "fsdp", "fsdp-2023", "fsdp-compiled"})
      .show_default();
  constexpr const char* kGroup = "Fixed axes (all others are searched)";
  const auto add = [&](const char* option, auto& value, const char* meaning) {
    return command.add_option(option, value, meaning).group(kGroup);
  };
  add("--dp", o.constraints.data, "data-parallel ranks").between(1, 1 << 20);
  add("--tp", o.constraints.tensor, "tensor-parallel ranks").between(1, 1 << 20);
  add("--pp", o.constraints.stages, "stages of a pipeline").between(1, 1 << 20);
  add("--cp", o.constraints.context, "context-parallel ranks").between(1, 1 << 20);
  add("--ep", o.constraints.expert, "expert-parallel ranks").between(1, 1 << 20);
  add("--virtual,--vp", o.constraints.virtual_stages, "virtual stages: model chunks a stage")
      .between(1, 1 << 20);
  add("--zero", o.constraints.zero, "ZeRO stage").between(0, 3);
  add("--micro-batch", o.constraints.micro_batch, "sequences of a micro-batch").between(1, 1 << 20);
  add("--recompute", o.recompute, "activation recomputation").one_of({"none", "selective", "full"});
  add("--max-memory", o.max_memory,
      "memory of a GPU to use at most (default: 90%), or of a rank on localhost (default: its part "
      "of what is free)")
      .type_name("BYTES");
  add("--min-mfu", o.min_mfu, "model FLOPs utilization to reach at least, percent").between(0, 100);
  constexpr const char* kQuestions = "Questions";
  command.add_option("--tokens", o.tokens, "to train on (2T): also say how many days that takes")
      .type_name("TOKENS")
      .group(kQuestions);
  command
      .add_option("--days", o.days,
                  "with --tokens: on how few hosts of the cluster it is done in so many days")
      .group(kQuestions);
  command
      .add_option(
          "--largest", o.largest,
          "the largest micro-batch, or the longest sequence (doubled from --seq), that fits")
      .one_of({"micro-batch", "sequence"})
      .group(kQuestions);
  command
      .add_flag("--memory", o.memory,
                "memory of the --model (also a number: 7.5B) by type and kind, without a search; "
                "of a rank of -n by ZeRO stage, activations with --global-batch and --seq")
      .group(kQuestions);
  command.add_option("--show", o.show, "layouts to print").between(1, 200).show_default();
  command.add_flag("--why", o.why,
                   "what the first one's time and memory are made of, and the next mesh");
  command.add_option("--plot", o.plot, "draw the first one's timeline and memory")
      .type_name("FILE.svg");
}

// At most one of these is given; none: --model is.
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
      line.add("plan", "how to lay a model's training out on a cluster, and what it will take");
  add_layouts(command, *o);
  command.add_option("--predict", o->predict, "predict the runs of this table").type_name("CSV");
  command
      .add_option("--fit", o->fit,
                  "fit efficiencies to the runs of this table; they go to --json FILE")
      .type_name("CSV");
  command.add_option("--efficiencies", o->efficiencies, "a file that --fit wrote")
      .type_name("FILE");
  command
      .add_option("--budget", o->budget,
                  "operations to train with: the best model's size and tokens")
      .type_name("FLOPS");
  command.add_option("--laws", o->laws,
                     "scaling laws for --budget: chinchilla, kaplan or a file of --fit-laws");
  command
      .add_option("--fit-laws", o->fit_laws,
                  "fit a scaling law to this table of runs (N, D, L); it goes to --json FILE")
      .type_name("CSV");
  command.add_option("--json", o->json, "write the results to this file").type_name("FILE");
  command.footer(cat(kClusterHelp, '\n', kFooter));
  command.runs([command, o] {
    refuse_several(command);
    if (!o->predict.empty()) return predict_runs(*o);
    if (!o->fit.empty()) {
      if (o->json.empty()) throw UsageError("--fit without --json: where shall they be kept?");
      return fit_runs(*o);
    }
    if (!o->budget.empty()) return plan_budget(*o);
    if (!o->fit_laws.empty()) return fit_laws(*o);
    if (o->memory) return plan_memory(*o);
    if (o->cluster == kThisHost && (o->days || !o->largest.empty())) {
      throw UsageError(
          cat("--days and --largest are questions about clusters, not --cluster ", kThisHost));
    }
    if (o->days && o->tokens.empty()) throw UsageError("--days without --tokens");
    if (o->days || !o->largest.empty()) return answer_question(*o);
    return plan_layouts(*o);
  });
}

}  // namespace tutti::tool
