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
    refuse("ZeRO stage 3", "weights would be gathered by ranks that need them at different times",
           "use ZeRO stage 0, 1 or 2, or another schedule");
  }
  if (kind.updates == pipeline::Updates::flushed) return;
  if (placement.has_shared_across) {
    refuse("tied embeddings",
           "the first and the last stage would wait for each other at each update",
           "add --untied, or use a synchronous schedule");
  }
  if (options.storage.stage == 3) {
    refuse("ZeRO stage 3",
           "weight versions require whole weights, which ZeRO stage 3 does not keep",
           "use ZeRO stage 0, 1 or 2");
  }
  if (options.clip) {
    refuse("clipping",
           "the global gradient norm is only known after the last backward of all stages",
           "remove --clip, or use a synchronous schedule");
  }
  if (options.loss_scaling) {
    refuse("loss scaling", "each update of a stage would depend on overflows in other stages",
           "use --precision f32 or bf16, or --loss-scale none");
  }
}

void check_experts(Model& model, const ReplicaOptions& options) {
  if (options.sync.has_order() && model.expert_load() != nullptr) {
    throw Error(ErrorCode::invalid_argument,
                cat(text_of(options.sync), " does not support mixture-of-experts models"),
                {.cause = "the router's loss and bias depend on all ranks' tokens of a step",
                 .remedy = "remove --sync, or use a dense model"});
  }
  const bool flushed =
      pipeline::schedule_named(options.pipeline.schedule).updates == pipeline::Updates::flushed;
  if (flushed || model.expert_load() == nullptr) return;
  const auto refuse = [&](bool found, const std::string& what, const std::string& remedy) {
    if (!found) return;
    throw Error(ErrorCode::invalid_argument,
                cat("the schedule ", options.pipeline.schedule, " does not support ", what),
                {.cause = "the micro-batches of a step use different weights",
                 .remedy = cat(remedy, ", or a synchronous schedule")});
  };
  refuse(model.expert_load()->is_needed(), "a balance loss over the global batch",
         "use --balance-loss 0");
  refuse(model.expert_load()->has_bias(), "a bias that balances the experts",
         "use --balance-bias 0");
}

bool sums_over_others(const Model& model, const pipeline::Placement& placement) {
  const MeshPlace& mesh = model.parameters().mesh();
  if (placement.holders.size() > 1) return true;
  if (mesh.ranks_along(kPartAxes) > 1 || mesh.size(Axis::expert) > 1) return true;
  const GroupTable groups = parameter_groups(model.parameters().specs(), placement.parameters);
  return std::ranges::any_of(groups.axes, [](AxisSet axes) { return axes != kBatchAxes; });
}

void check_averages(const ReplicaOptions& options, bool sums, bool shares, int ranks_of_a_worker) {
  const auto refuse = [&](bool found, const std::string& what, std::string_view remedy) {
    if (!found || !options.sync.has_own_values()) return;
    throw Error(ErrorCode::invalid_argument, cat(text_of(options.sync), " does not support ", what),
                {.cause = "the workers' parameters differ between synchronizations",
                 .remedy = cat("remove --sync, or ", remedy)});
  };
  refuse(options.storage.stage != 0, cat("ZeRO stage ", options.storage.stage), "--zero");
  refuse(sums, "gradients that are reduced over the ranks of one worker",
         "--sp, --cp, --spatial, --ep and the schedule chimera");
  refuse(shares && options.sync.fragments > 1,
         "fragments of a model whose tied embeddings are on two stages",
         "use one fragment, or add --untied");
  refuse(shares && options.sync.wire != WireFormat::plain,
         "a wire format with tied embeddings on two stages", "--wire, or add --untied");
  refuse(ranks_of_a_worker > 1 && options.sync.kind == SyncKind::async_gossip,
         "a model that is sharded over ranks", "--pp and --tp");
  const pipeline::ScheduleKind& schedule = pipeline::schedule_named(options.pipeline.schedule);
  refuse(schedule.updates != pipeline::Updates::flushed, cat("the schedule ", schedule.name),
         "use a synchronous schedule");
  refuse(options.without_masters(), "bf16 parameters without master weights",
         "--stochastic-rounding and --nearest-rounding");
  refuse(static_cast<bool>(options.synchronizer), "a custom synchronizer", "the synchronizer");
  refuse(options.sync.kind == SyncKind::async_gossip && options.loss_scaling, "loss scaling",
         "use --precision f32 or bf16");
  refuse(options.sync.kind == SyncKind::fedprox && options.storage.backend != nullptr,
         "parameters in GPU memory", "train on the CPU");
  if (options.sync.kind == SyncKind::fedprox && options.loss_scaling) {
    throw Error(ErrorCode::invalid_argument,
                cat(text_of(options.sync), " does not support loss scaling"),
                {.cause = "the proximal term would be added to scaled gradients",
                 .remedy = "use --precision f32 or bf16, or --loss-scale none"});
  }
  if (options.sync.secure_sums && !options.sync.is_federated()) {
    throw Error(ErrorCode::invalid_argument,
                cat("--secure-sums is not available with ", text_of(options.sync)),
                {.where = "--secure-sums",
                 .cause = "only federated clients, which train in rounds, mask their values",
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
         "all ranks would be dedicated servers", cat("use more ranks than ", sync.servers));
  refuse(options.storage.stage != 0, cat("ZeRO stage ", options.storage.stage),
         "the optimizer state is already sharded over the servers", "--zero");
  refuse(cut, "a model that is sharded over ranks", "each worker computes the whole model",
         "--pp, --tp, --cp, --spatial and --ep");
  refuse(options.without_masters(), "bf16 parameters without master weights",
         "servers update f32 master weights", "--stochastic-rounding and --nearest-rounding");
  refuse(options.loss_scaling.has_value(), "loss scaling",
         "an overflow on one worker would have to be sent to all workers",
         "use --precision f32 or bf16");
  refuse(options.storage.backend != nullptr, "parameters in GPU memory",
         "servers update parameters in host memory", "train on the CPU");
  refuse(static_cast<bool>(options.synchronizer), "a custom synchronizer",
         "both would control when parameters change", "the synchronizer");
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
                {.cause = "8-bit or whole-matrix optimizer state cannot be averaged over ranks",
                 .remedy = "use --optimizer adamw"});
  }
  if (options.sync.servers > 0 && optimizer.takes_matrices()) {
    throw Error(
        ErrorCode::unsupported, cat(text_of(options.sync), " does not support this optimizer"),
        {.cause = "this optimizer requires whole matrices, but dedicated servers shard them",
         .remedy = "use another optimizer, or let all ranks serve by removing :SERVERS"});
  }
  if (options.sync.kind != SyncKind::async || optimizer.is_elementwise()) return;
  throw Error(
      ErrorCode::invalid_argument, cat(text_of(options.sync), " does not support this optimizer"),
      {.cause =
           "this optimizer requires norms of whole parameters, but servers update their shards at "
           "different times",
       .remedy = "use sgd, adam or adamw, or --sync ps or ssp:BOUND"});
}

bool reports_late(const ReplicaOptions& options) {
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
  options.storage.separate_masters = true;
  return options;
}

void check_cuts(Model& model, const MeshPlace& place) {
  for (const ParameterSpec& spec : model.parameters().specs()) {
    if (spec.placement.is_whole() || spec.mesh == place) continue;
    throw Error(ErrorCode::invalid_argument,
                cat("the parameter ", spec.name, " is sharded for a different mesh"),
                {.remedy = "create the model with the MeshPlace of this mesh"});
  }
}

void check_rounding(const ReplicaOptions& options) {
  if (options.stochastic_rounding && options.nearest_rounding) {
    throw Error(ErrorCode::invalid_argument, "two ways of rounding were given",
                {.remedy = "use --stochastic-rounding or --nearest-rounding"});
  }
  if (!options.without_masters() || options.storage.dtype == DType::bf16) return;
  throw Error(
      ErrorCode::invalid_argument,
      cat("values in ", name(options.storage.dtype), " need fp32 master weights"),
      {.cause = "only bf16 parameters are updated without master weights",
       .remedy = "use --precision bf16, or remove --stochastic-rounding or --nearest-rounding"});
}

bool shards_sums(const ReplicaOptions& options) {
  return options.storage.stage >= 2 && !options.data_parallel.allow_unused &&
         !settings().get_bool("TUTTI_DETERMINISTIC");
}

void check_scale(const CommunicationHook& hook, const ReplicaOptions& options) {
  if (!hook.remembers() || !options.loss_scaling) return;
  throw Error(ErrorCode::invalid_argument, "error feedback is not available with loss scaling",
              {.cause = "the scale of the stored errors would change",
               .remedy = "use --precision f32 or bf16, or --compression fp16"});
}

void check_compression(const ReplicaOptions& options, const pipeline::Placement& placement) {
  if (options.synchronizer) {
    throw Error(ErrorCode::invalid_argument,
                "compression is not available with a custom synchronizer",
                {.cause = "the synchronizer controls what ranks send",
                 .remedy = "remove the compression or the synchronizer"});
  }
  if (options.sync.kind != SyncKind::allreduce) {
    throw Error(ErrorCode::invalid_argument,
                "compression requires gradients that are all-reduced over ranks",
                {.cause = cat("--sync ", text_of(options.sync), " does not all-reduce gradients"),
                 .remedy = "remove --compression or --sync"});
  }
  if (!placement.has_shared_across) return;
  throw Error(
      ErrorCode::invalid_argument,
      "gradients of tied embeddings on two stages cannot be compressed",
      {.cause =
           "the compression errors, and so the embeddings, would differ between the two stages",
       .remedy = "add --untied, or remove --compression"});
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
         "ranks keep gradient shards, but factors give whole gradients", "use --zero 0 or 1");
  refuse(options.sync.kind != SyncKind::allreduce, cat("--sync ", text_of(options.sync)),
         "this method does not all-reduce the gradients of a step", "--sync");
  refuse(static_cast<bool>(options.synchronizer), "a custom synchronizer",
         "the synchronizer controls what ranks send", "the synchronizer");
  refuse(options.runner.gemm_format != GemmFormat::none, "products in a narrow format",
         "the products of factors are not rounded", "--gemm-format");
  refuse(compressed, "compression", "both replace the all-reduce of gradients", "--compression");
  refuse(settings().get_bool("TUTTI_DETERMINISTIC"), "TUTTI_DETERMINISTIC=1",
         "products over all ranks' rows are not summed in the order of the micro-batches",
         "unset it");
  refuse(mesh.size(Axis::tensor) > 1, "tensor-parallel ranks",
         "tensor-parallel ranks hold shards of layers and of rows", "--tp");
  refuse(model.expert_load() != nullptr, "a mixture-of-experts model",
         "the number of rows of an expert is unknown before the step", "use a dense model");
  refuse(placement.holders.size() > 1, cat("the schedule ", options.pipeline.schedule),
         "stages with the same layers finish them in different orders", "use another schedule");
  refuse(options.storage.backend != nullptr, "parameters in GPU memory",
         "factors are kept in host memory", "train on the CPU");
}

}  // namespace tutti::training
