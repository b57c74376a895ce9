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
                cat("the schedule ", kind.name, " does not go with ", what),
                {.cause = std::string(cause), .remedy = std::string(remedy)});
  };
  if (placement.holders.size() > 1 && options.storage.stage == 3) {
    refuse("ZeRO stage 3",
           "weights would be gathered among ranks that need them at different times",
           "take ZeRO stage 0, 1 or 2, or another schedule");
  }
  if (kind.updates == pipeline::Updates::flushed) return;
  if (placement.has_shared_across) {
    refuse("tied embeddings",
           "the first and the last stage would wait for each other at each update",
           "untie them (--untied), or take a synchronous schedule");
  }
  if (options.storage.stage == 3) {
    refuse("ZeRO stage 3", "it keeps no whole weights of which there could be versions",
           "take ZeRO stage 0, 1 or 2");
  }
  if (options.clip) {
    refuse("clipping", "the norm of all gradients is known after all stages' last backward only",
           "leave out --clip, or take a synchronous schedule");
  }
  if (options.loss_scaling) {
    refuse("loss scaling", "a stage would have to know of other stages' overflows at each update",
           "train in f32 or bf16, or give --loss-scale none");
  }
}

void check_experts(Model& model, const ReplicaOptions& options) {
  if (options.sync.has_order() && model.expert_load() != nullptr) {
    throw Error(ErrorCode::invalid_argument,
                cat(text_of(options.sync), " does not go with a model of experts"),
                {.cause = "its router's loss and bias follow from all ranks' tokens in each step",
                 .remedy = "leave out --sync, or take a dense model"});
  }
  const bool flushed =
      pipeline::schedule_named(options.pipeline.schedule).updates == pipeline::Updates::flushed;
  if (flushed || model.expert_load() == nullptr || !model.expert_load()->is_needed()) return;
  throw Error(ErrorCode::invalid_argument,
              cat("the schedule ", options.pipeline.schedule,
                  " does not go with a balance loss of the global batch"),
              {.cause = "a step's micro-batches go through the model with other weights each",
               .remedy = "give --balance-loss 0, or take a synchronous schedule"});
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
    throw Error(ErrorCode::invalid_argument, cat(text_of(options.sync), " does not go with ", what),
                {.cause = "workers have values of their own, which differ in between",
                 .remedy = cat("leave out --sync, or ", remedy)});
  };
  refuse(options.storage.stage != 0, cat("ZeRO stage ", options.storage.stage), "--zero");
  refuse(sums, "gradients that the ranks of one worker sum",
         "--sp, --cp, --spatial, --ep and the schedule chimera");
  refuse(ranks_of_a_worker > 1 && options.sync.kind == SyncKind::async_gossip,
         "a model that is cut over ranks", "--pp and --tp");
  const pipeline::ScheduleKind& schedule = pipeline::schedule_named(options.pipeline.schedule);
  refuse(schedule.updates != pipeline::Updates::flushed, cat("the schedule ", schedule.name),
         "take a synchronous schedule");
  refuse(options.stochastic_rounding, "parameters in bf16 without masters",
         "--stochastic-rounding");
  refuse(static_cast<bool>(options.synchronizer), "a synchronizer of one's own",
         "the synchronizer");
  refuse(options.sync.kind == SyncKind::async_gossip && options.loss_scaling, "loss scaling",
         "train in f32 or bf16");
  refuse(options.sync.kind == SyncKind::fedprox && options.storage.backend != nullptr,
         "parameters in a GPU's memory", "train on the CPU");
  if (options.sync.kind == SyncKind::fedprox && options.loss_scaling) {
    throw Error(ErrorCode::invalid_argument,
                cat(text_of(options.sync), " does not go with loss scaling"),
                {.cause = "the proximal term is added to gradients that are not scaled",
                 .remedy = "train in f32 or bf16, or give --loss-scale none"});
  }
  if (options.sync.secure_sums && !options.sync.is_federated()) {
    throw Error(ErrorCode::invalid_argument,
                cat("values are not summed securely with ", text_of(options.sync)),
                {.where = "--secure-sums",
                 .cause = "only clients that train in rounds mask their values",
                 .remedy = "give --sync fedavg:K, fedprox:K,MU or fedadam:K"});
  }
}

void check_servers(const ReplicaOptions& options, int ranks, bool cut) {
  const SyncOptions& sync = options.sync;
  if (!sync.has_servers()) return;
  const auto refuse = [&](bool found, const std::string& what, std::string_view cause,
                          std::string_view remedy) {
    if (!found) return;
    throw Error(ErrorCode::invalid_argument, cat(text_of(sync), " does not go with ", what),
                {.cause = std::string(cause), .remedy = cat("leave out --sync, or ", remedy)});
  };
  refuse(sync.servers >= ranks, cat(ranks, ranks == 1 ? " rank" : " ranks"),
         "the last ranks serve only, and no rank is left to compute",
         cat("give more ranks than ", sync.servers));
  refuse(options.storage.stage != 0, cat("ZeRO stage ", options.storage.stage),
         "servers have the optimizer's state already, cut over them", "--zero");
  refuse(cut, "a model that is cut over ranks", "a worker computes with the whole model",
         "--pp, --tp, --cp, --spatial and --ep");
  refuse(options.stochastic_rounding, "parameters in bf16 without masters",
         "servers update masters in f32", "--stochastic-rounding");
  refuse(options.loss_scaling.has_value(), "loss scaling",
         "an overflow on one worker would have to be known to all", "train in f32 or bf16");
  refuse(options.storage.backend != nullptr, "parameters in a GPU's memory",
         "servers update in the host's memory", "train on the CPU");
  refuse(static_cast<bool>(options.synchronizer), "a synchronizer of one's own",
         "both would say when values change", "the synchronizer");
}

void check_updates(const ReplicaOptions& options, const Model& model, const Optimizer& optimizer) {
  const auto has_other_states = [&](const ParameterSpec& spec) {
    return optimizer.state_format(spec) != StateFormat::f32 ||
           !optimizer.whole_states(spec, static_cast<int>(model.units().size())).empty();
  };
  if (options.sync.has_own_values() &&
      std::ranges::any_of(model.parameters().specs(), has_other_states)) {
    throw Error(ErrorCode::unsupported,
                cat(text_of(options.sync), " does not go with this optimizer"),
                {.cause = "a state in 8 bits or of whole matrices cannot be averaged over ranks",
                 .remedy = "give --optimizer adamw"});
  }
  if (options.sync.servers > 0 && optimizer.takes_matrices()) {
    throw Error(ErrorCode::unsupported,
                cat(text_of(options.sync), " does not go with this optimizer"),
                {.cause = "it works on whole matrices, which servers apart from workers share out",
                 .remedy = "take another optimizer, or let all ranks serve: leave :SERVERS out"});
  }
  if (options.sync.kind != SyncKind::async || optimizer.is_elementwise()) return;
  throw Error(ErrorCode::invalid_argument,
              cat(text_of(options.sync), " does not go with this optimizer"),
              {.cause = "it needs norms of whole parameters, and servers update their shards at "
                        "different times",
               .remedy = "take sgd, adam or adamw, or --sync ps or ssp:BOUND"});
}

bool tells_late(const ReplicaOptions& options) {
  return options.sync.has_servers() || (options.sync.has_own_values() && !options.loss_scaling);
}

Error diverged(int64_t step, const std::string& what, double learning_rate) {
  return {ErrorCode::invalid_argument,
          cat("step ", step, ": ", what, " is not finite"),
          {.cause = cat("the training diverged, at a learning rate of ", learning_rate),
           .remedy = "try a smaller learning rate, --clip or a longer warm-up"}};
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
                cat("the parameter ", spec.name, " is cut for another mesh than this one"),
                {.remedy = "make the model with the place of this mesh"});
  }
}

void check_rounding(const ReplicaOptions& options) {
  if (!options.stochastic_rounding || options.storage.dtype == DType::bf16) return;
  throw Error(ErrorCode::invalid_argument,
              cat("values in ", name(options.storage.dtype), " are not rounded stochastically"),
              {.cause = "it takes the place of bf16 values' fp32 masters",
               .remedy = "train in bf16, or leave out --stochastic-rounding"});
}

bool shards_sums(const ReplicaOptions& options) {
  return options.storage.stage >= 2 && !options.data_parallel.allow_unused &&
         !settings().get_bool("TUTTI_DETERMINISTIC");
}

void check_scale(const CommunicationHook& hook, const ReplicaOptions& options) {
  if (!hook.remembers() || !options.loss_scaling) return;
  throw Error(ErrorCode::invalid_argument,
              "gradients whose loss is scaled cannot be compressed with error feedback",
              {.cause = "the scale of what is remembered of them changes",
               .remedy = "train in f32 or bf16, or compress to f16 instead"});
}

void check_compression(const ReplicaOptions& options, const pipeline::Placement& placement) {
  if (options.synchronizer) {
    throw Error(ErrorCode::invalid_argument,
                "gradients cannot be compressed beside a synchronizer of one's own",
                {.cause = "what ranks tell each other is its affair",
                 .remedy = "leave the compression out, or the synchronizer"});
  }
  if (options.sync.kind != SyncKind::allreduce) {
    throw Error(ErrorCode::invalid_argument,
                "gradients that are not summed over ranks cannot be compressed",
                {.cause = cat("with ", text_of(options.sync), " no all-reduce takes them"),
                 .remedy = "leave out --compression or --sync"});
  }
  if (!placement.has_shared_across) return;
  throw Error(ErrorCode::invalid_argument,
              "gradients of tied embeddings on two stages cannot be compressed",
              {.cause = "what is lost would differ between the two, and so would the embeddings",
               .remedy = "untie them (--untied), or leave out --compression"});
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
                 .remedy = cat("leave out --factors, or ", remedy)});
  };
  const MeshPlace& mesh = model.parameters().mesh();
  refuse(options.storage.stage > 1, cat("ZeRO stage ", options.storage.stage),
         "ranks keep shards of gradients, and each multiplies whole ones", "give --zero 0 or 1");
  refuse(options.sync.kind != SyncKind::allreduce, cat("--sync ", text_of(options.sync)),
         "it does not sum the gradients of a step over all ranks", "--sync");
  refuse(static_cast<bool>(options.synchronizer), "a synchronizer of one's own",
         "what ranks send each other is its affair", "the synchronizer");
  refuse(compressed, "compression", "both replace the all-reduce of gradients", "--compression");
  refuse(settings().get_bool("TUTTI_DETERMINISTIC"), "TUTTI_DETERMINISTIC=1",
         "products of all ranks' rows are not summed in the order of the micro-batches",
         "unset it");
  refuse(mesh.size(Axis::tensor) > 1, "tensor ranks",
         "they have parts of the layers, and of their rows", "--tp");
  refuse(model.expert_load() != nullptr, "a model of experts",
         "how many rows an expert has is not known before the step", "take a dense model");
  refuse(placement.holders.size() > 1, cat("the schedule ", options.pipeline.schedule),
         "stages with the same layers finish them in different orders", "take another schedule");
  refuse(options.storage.backend != nullptr, "parameters in a GPU's memory",
         "factors are kept in the host's memory", "train on the CPU");
}

}  // namespace tutti::training
