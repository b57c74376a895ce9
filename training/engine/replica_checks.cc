// Checks for incompatible options of a replica.

#include <algorithm>

#include "base/error.h"
#include "base/settings.h"
#include "base/text.h"
#include "training/engine/replica.h"

namespace tutti::training {

void check_schedule(const ReplicaOptions& options, const pipeline::Placement& placement) {
  const pipeline::ScheduleKind& kind = pipeline::schedule_named(options.pipeline.schedule);
  const auto refuse = [&](std::string_view what, std::string_view cause, std::string_view remedy) {
    throw Error(ErrorCode::invalid_argument,
                cat("the schedule ", kind.name, " does not support ", what),
                {.cause = std::string(cause), .remedy = std::string(remedy)});
  };
  if (placement.holders.size() > 1 && options.storage.stage == 3) {
    refuse("ZeRO stage 3", "ranks would gather weights that they need at different times",
           "use ZeRO stage 0, 1 or 2, or another schedule");
  }
  if (kind.updates == pipeline::Updates::flushed) return;
  if (placement.has_shared_across) {
    refuse("tied embeddings",
           "the first and the last stage would wait for each other in each update",
           "untie them (--untied), or use a synchronous schedule");
  }
  if (options.storage.stage == 3) {
    refuse("ZeRO stage 3", "stage 3 keeps no whole weights that could be stashed",
           "use ZeRO stage 0, 1 or 2");
  }
  if (options.clip) {
    refuse("clipping", "the gradient norm is known only after the last backward of all stages",
           "remove --clip, or use a synchronous schedule");
  }
  if (options.loss_scaling) {
    refuse("loss scaling", "each update would require the overflow state of all stages",
           "train in f32 or bf16, or use --loss-scale none");
  }
}

void check_experts(Model& model, const ReplicaOptions& options) {
  if (options.sync.has_order() && model.expert_load() != nullptr) {
    throw Error(
        ErrorCode::invalid_argument,
        cat(text_of(options.sync), " does not support a mixture of experts"),
        {.cause = "the router's loss and bias depend on the tokens of all ranks in each step",
         .remedy = "remove --sync, or use a dense model"});
  }
  const bool flushed =
      pipeline::schedule_named(options.pipeline.schedule).updates == pipeline::Updates::flushed;
  if (flushed || model.expert_load() == nullptr || !model.expert_load()->is_needed()) return;
  throw Error(ErrorCode::invalid_argument,
              cat("the schedule ", options.pipeline.schedule,
                  " does not support a balance loss over the global batch"),
              {.cause = "the micro-batches of a step use different weights",
               .remedy = "use --balance-loss 0, or a synchronous schedule"});
}

bool sums_over_others(const Model& model, const pipeline::Placement& placement) {
  const MeshPlace& mesh = model.parameters().mesh();
  if (placement.holders.size() > 1) return true;
  if (mesh.ranks_along(kPartAxes) > 1 || mesh.size(Axis::expert) > 1) return true;
  const GroupTable groups = parameter_groups(model.parameters().specs(), placement.parameters);
  return std::ranges::any_of(groups.axes, [](AxisSet axes) { return axes != kBatchAxes; });
}

void check_averages(const ReplicaOptions& options, bool sums, int ranks_of_a_worker) {
  const auto refuse = [&](bool found, const std::string& what, std::string_view remedy) {
    if (!found || !options.sync.has_own_values()) return;
    throw Error(ErrorCode::invalid_argument, cat(text_of(options.sync), " does not support ", what),
                {.cause = "the workers' values differ between synchronizations",
                 .remedy = cat("remove --sync, or ", remedy)});
  };
  refuse(options.storage.stage != 0, cat("ZeRO stage ", options.storage.stage), "--zero");
  refuse(sums, "gradient sums within a worker",
         "--sp, --cp, --spatial, --ep and the schedule chimera");
  refuse(ranks_of_a_worker > 1 && options.sync.kind == SyncKind::async_gossip,
         "a model that is sharded over ranks", "--pp and --tp");
  const pipeline::ScheduleKind& schedule = pipeline::schedule_named(options.pipeline.schedule);
  refuse(schedule.updates != pipeline::Updates::flushed, cat("the schedule ", schedule.name),
         "use a synchronous schedule");
  refuse(options.stochastic_rounding, "bf16 parameters without master weights",
         "--stochastic-rounding");
  refuse(static_cast<bool>(options.synchronizer), "a user-defined synchronizer",
         "the synchronizer");
  refuse(options.sync.kind == SyncKind::async_gossip && options.loss_scaling, "loss scaling",
         "train in f32 or bf16");
  refuse(options.sync.kind == SyncKind::fedprox && options.storage.backend != nullptr,
         "parameters in GPU memory", "train on the CPU");
  if (options.sync.kind == SyncKind::fedprox && options.loss_scaling) {
    throw Error(ErrorCode::invalid_argument,
                cat(text_of(options.sync), " does not support loss scaling"),
                {.cause = "the proximal term is added to unscaled gradients",
                 .remedy = "train in f32 or bf16, or use --loss-scale none"});
  }
  if (options.sync.secure_sums && !options.sync.is_federated()) {
    throw Error(ErrorCode::invalid_argument,
                cat(text_of(options.sync), " does not support secure sums"),
                {.where = "--secure-sums",
                 .cause = "only federated clients mask their values",
                 .remedy = "use --sync fedavg:K, fedprox:K,MU or fedadam:K"});
  }
}

void check_servers(const ReplicaOptions& options, int ranks, bool cut) {
  const SyncOptions& sync = options.sync;
  if (!sync.has_servers()) return;
  const auto refuse = [&](bool found, const std::string& what, std::string_view cause,
                          std::string_view remedy) {
    if (!found) return;
    throw Error(ErrorCode::invalid_argument, cat(text_of(sync), " does not support ", what),
                {.cause = std::string(cause), .remedy = cat("remove --sync, or ", remedy)});
  };
  refuse(sync.servers >= ranks, cat(ranks, ranks == 1 ? " rank" : " ranks"),
         "the last ranks are servers only, and no rank is left to compute",
         cat("use more ranks than ", sync.servers));
  refuse(options.storage.stage != 0, cat("ZeRO stage ", options.storage.stage),
         "the servers already shard the optimizer state", "--zero");
  refuse(cut, "a model that is sharded over ranks", "each worker computes the whole model",
         "--pp, --tp, --cp, --spatial and --ep");
  refuse(options.stochastic_rounding, "bf16 parameters without master weights",
         "servers update f32 master weights", "--stochastic-rounding");
  refuse(options.loss_scaling.has_value(), "loss scaling",
         "an overflow on one worker would have to be reported to all", "train in f32 or bf16");
  refuse(options.storage.backend != nullptr, "parameters in GPU memory",
         "servers update host memory", "train on the CPU");
  refuse(static_cast<bool>(options.synchronizer), "a user-defined synchronizer",
         "both would determine when values change", "the synchronizer");
}

void check_updates(const ReplicaOptions& options, const Model& model, const Optimizer& optimizer) {
  const auto has_other_states = [&](const ParameterSpec& spec) {
    return optimizer.state_format(spec) != StateFormat::f32 ||
           !optimizer.whole_states(spec, static_cast<int>(model.units().size())).empty();
  };
  if (options.sync.has_own_values() &&
      std::ranges::any_of(model.parameters().specs(), has_other_states)) {
    throw Error(ErrorCode::unsupported,
                cat(text_of(options.sync), " does not support this optimizer"),
                {.cause = "8-bit states and states of whole matrices cannot be averaged over ranks",
                 .remedy = "use --optimizer adamw"});
  }
  if (options.sync.servers > 0 && optimizer.takes_matrices()) {
    throw Error(ErrorCode::unsupported,
                cat(text_of(options.sync), " does not support this optimizer"),
                {.cause = "it updates whole matrices, which dedicated servers shard",
                 .remedy = "use another optimizer, or let all ranks be servers (remove :SERVERS)"});
  }
  if (options.sync.kind != SyncKind::async || optimizer.is_elementwise()) return;
  throw Error(ErrorCode::invalid_argument,
              cat(text_of(options.sync), " does not support this optimizer"),
              {.cause = "it requires norms of whole parameters, but servers update their shards at "
                        "different times",
               .remedy = "use sgd, adam or adamw, or --sync ps or ssp:BOUND"});
}

bool tells_late(const ReplicaOptions& options) {
  return options.sync.has_servers() || (options.sync.has_own_values() && !options.loss_scaling);
}

Error diverged(int64_t step, const std::string& what, double learning_rate) {
  return {ErrorCode::invalid_argument,
          cat("step ", step, ": ", what, " is not finite"),
          {.cause = cat("training diverged at a learning rate of ", learning_rate),
           .remedy = "use a smaller learning rate, --clip or a longer warm-up"}};
}

ReplicaOptions with_shards(ReplicaOptions options) {
  if (!options.sync.has_servers()) return options;
  options.storage.stage = 1;
  options.storage.owners = options.sync.servers;
  options.storage.masters_apart = true;
  return options;
}

void check_cuts(Model& model, const MeshPlace& place) {
  for (const ParameterSpec& spec : model.parameters().specs()) {
    if (spec.placement.is_whole() || spec.mesh == place) continue;
    throw Error(ErrorCode::invalid_argument,
                cat("the parameter ", spec.name, " is sharded for a different mesh"),
                {.remedy = "create the model with the place of this mesh"});
  }
}

void check_rounding(const ReplicaOptions& options) {
  if (!options.stochastic_rounding || options.storage.dtype == DType::bf16) return;
  throw Error(ErrorCode::invalid_argument,
              cat("values in ", name(options.storage.dtype), " cannot be rounded stochastically"),
              {.cause = "stochastic rounding replaces the fp32 master weights of bf16 values",
               .remedy = "train in bf16, or remove --stochastic-rounding"});
}

bool shards_sums(const ReplicaOptions& options) {
  return options.storage.stage >= 2 && !options.data_parallel.allow_unused &&
         !settings().get_bool("TUTTI_DETERMINISTIC");
}

void check_scale(const CommunicationHook& hook, const ReplicaOptions& options) {
  if (!hook.remembers() || !options.loss_scaling) return;
  throw Error(ErrorCode::invalid_argument,
              "gradients of a scaled loss cannot be compressed with error feedback",
              {.cause = "the scale of the accumulated errors changes",
               .remedy = "train in f32 or bf16, or compress to f16 instead"});
}

void check_compression(const ReplicaOptions& options, const pipeline::Placement& placement) {
  if (options.synchronizer) {
    throw Error(ErrorCode::invalid_argument,
                "gradients cannot be compressed with a user-defined synchronizer",
                {.cause = "the synchronizer determines what ranks send",
                 .remedy = "remove the compression or the synchronizer"});
  }
  if (options.sync.kind != SyncKind::allreduce) {
    throw Error(ErrorCode::invalid_argument,
                "gradients that are not summed over ranks cannot be compressed",
                {.cause = cat("with ", text_of(options.sync), " gradients are not all-reduced"),
                 .remedy = "remove --compression or --sync"});
  }
  if (!placement.has_shared_across) return;
  throw Error(
      ErrorCode::invalid_argument,
      "gradients of tied embeddings on two stages cannot be compressed",
      {.cause = "the compression errors of the two stages differ, so the embeddings would differ",
       .remedy = "untie them (--untied), or remove --compression"});
}

void check_factors(const ReplicaOptions& options, Model& model,
                   const pipeline::Placement& placement, bool compressed) {
  if (options.factors.layers == FactorLayers::none) return;
  const auto refuse = [](bool found, const std::string& what, std::string_view cause,
                         std::string_view remedy) {
    if (!found) return;
    throw Error(ErrorCode::invalid_argument, cat("gradients cannot be sent as factors with ", what),
                {.where = "--factors",
                 .cause = std::string(cause),
                 .remedy = cat("remove --factors, or ", remedy)});
  };
  const MeshPlace& mesh = model.parameters().mesh();
  refuse(options.storage.stage > 1, cat("ZeRO stage ", options.storage.stage),
         "ranks keep shards of gradients, but factors require whole gradients",
         "use --zero 0 or 1");
  refuse(options.sync.kind != SyncKind::allreduce, cat("--sync ", text_of(options.sync)),
         "it does not sum the gradients of a step over all ranks", "--sync");
  refuse(static_cast<bool>(options.synchronizer), "a user-defined synchronizer",
         "the synchronizer determines what ranks send", "the synchronizer");
  refuse(compressed, "compression", "both replace the all-reduce of gradients", "--compression");
  refuse(settings().get_bool("TUTTI_DETERMINISTIC"), "TUTTI_DETERMINISTIC=1",
         "the products of all ranks' rows are not summed in micro-batch order", "unset it");
  refuse(mesh.size(Axis::tensor) > 1, "tensor ranks",
         "each has parts of the layers and of their rows", "--tp");
  refuse(model.expert_load() != nullptr, "a mixture of experts",
         "the number of rows of an expert is unknown before the step", "use a dense model");
  refuse(placement.holders.size() > 1, cat("the schedule ", options.pipeline.schedule),
         "stages with the same layers finish them in different orders", "use another schedule");
  refuse(options.storage.backend != nullptr, "parameters in GPU memory",
         "factors are kept in host memory", "train on the CPU");
}

}  // namespace tutti::training
