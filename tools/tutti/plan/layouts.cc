// Implements tutti plan --model --cluster: ranks layouts by their predicted step time.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/names.h"
#include "base/processors.h"
#include "base/text.h"
#include "collectives/cluster/cluster.h"
#include "tools/tutti/clusters.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/named.h"
#include "tools/tutti/plan/faces.h"
#include "tools/tutti/plan/picture.h"
#include "training/planner/search.h"

namespace tutti::tool {

namespace {

namespace planner = training::planner;
using planner::PlannedLayout;

void require(const PlanOptions& o) {
  if (o.model.empty()) throw UsageError("--model is required");
  if (o.cluster.empty()) throw UsageError("--cluster is required");
  if (!o.global_batch) throw UsageError("--global-batch is required");
  if (!o.sequence) throw UsageError("--seq is required");
}

double tokens_a_second(const planner::Job& job, const PlannedLayout& planned) {
  return static_cast<double>(job.global_batch * job.sequence) / planned.time.total();
}

std::string why(const PlannedLayout& planned) {
  if (!planned.fits) return "does not fit";
  return cat("bound by ", planner::bound_of(planned.time));
}

Json memory_parts_of(const planner::MemoryUse& m) {
  return {{"parameters", m.parameters},   {"gradients", m.gradients}, {"states", m.states},
          {"activations", m.activations}, {"buffers", m.buffers},     {"other", m.other}};
}

Json to_json(const planner::Job& job, const PlannedLayout& planned) {
  const planner::Layout& l = planned.layout;
  Json json = {{"layout", to_text(l)},
               {"dp", l.data},
               {"tp", l.tensor},
               {"pp", l.stages},
               {"cp", l.context},
               {"ep", l.expert},
               {"vp", l.virtual_stages},
               {"zero", l.zero},
               {"sp", l.sequence_parallel},
               {"micro_batch", l.micro_batch},
               {"recompute", name(l.recompute)},
               {"step_s", planned.time.total()},
               {"step_s_low", planned.seconds.low},
               {"step_s_high", planned.seconds.high},
               {"tokens_s", tokens_a_second(job, planned)},
               {"mfu", planned.mfu},
               {"memory_bytes", planned.memory.total()},
               {"fits", planned.fits},
               {"why", why(planned)},
               {"step_parts_s", step_parts_of(planned.time)},
               {"memory_parts_bytes", memory_parts_of(planned.memory)}};
  const std::string command = train_command(job, l);
  json["command"] = command.empty() ? Json(nullptr) : Json(command);
  return json;
}

std::string bytes_text(double bytes) { return human_bytes(static_cast<uint64_t>(bytes)); }

void print(const planner::Job& job, const PlannedLayout& planned) {
  const bool is_short = planned.time.total() < 0.1;
  const double unit = is_short ? 1e3 : 1;
  std::printf("%10.3f %s (%.3f to %.3f) %12.0f tokens/s %5.1f%% MFU %10s  %s\n%12s%s\n",
              unit * planned.time.total(), is_short ? "ms" : "s", unit * planned.seconds.low,
              unit * planned.seconds.high, tokens_a_second(job, planned), 100 * planned.mfu,
              bytes_text(planned.memory.total()).c_str(), to_text(planned.layout).c_str(), "",
              why(planned).c_str());
}

// Prints the parts of the best layout's time and memory, and the best layout on another mesh.
void print_why(const planner::Plans& plans) {
  const PlannedLayout& best = plans.layouts.front();
  std::printf(
      "\n"
      "Step of the best layout:");
  const Json time = step_parts_of(best.time);
  for (const Json::Member& part : time.items()) {
    const double seconds = part.value.get<double>();
    if (seconds > 0) {
      std::printf(" %s %.1f%%", part.name.c_str(), 100 * seconds / best.time.total());
    }
  }
  std::printf(
      "\n"
      "Memory of the best layout:");
  const Json memory = memory_parts_of(best.memory);
  for (const Json::Member& part : memory.items()) {
    const double bytes = part.value.get<double>();
    if (bytes > 0) std::printf(" %s %s", part.name.c_str(), bytes_text(bytes).c_str());
  }
  std::printf("\n");
  const auto other = std::ranges::find_if(plans.layouts, [&](const PlannedLayout& planned) {
    const planner::Layout& a = planned.layout;
    const planner::Layout& b = best.layout;
    return planned.fits && (a.data != b.data || a.tensor != b.tensor || a.stages != b.stages ||
                            a.context != b.context || a.expert != b.expert);
  });
  if (other == plans.layouts.end()) return;
  std::printf("The best layout on another mesh, %s, takes %.1f%% longer: %s.\n",
              to_text(other->layout).c_str(), 100 * (other->time.total() / best.time.total() - 1),
              why(*other).c_str());
}

}  // namespace

Json step_parts_of(const planner::StepTime& t) {
  return {{"computing", t.computing}, {"tensor", t.tensor}, {"context", t.context},
          {"dispatch", t.dispatch},   {"bubble", t.bubble}, {"transfers", t.transfers},
          {"gathers", t.gathers},     {"sums", t.sums},     {"update", t.update}};
}

planner::Job job_of(const PlanOptions& o) {
  require(o);
  planner::Job job;
  job.model = planner::load_model_shape(o.model);
  job.sequence = *o.sequence;
  job.global_batch = *o.global_batch;
  if (o.cluster == kThisHost) return on_this_host(std::move(job), o);
  if (o.precision == "f32") throw UsageError(cat("--precision f32 is for --cluster ", kThisHost));
  job.cluster = load_cluster_or_topology(o.cluster, o.gpus, o.gpu);
  const auto processor = planner::processor_named(job.cluster.gpu);
  if (!processor) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("the performance of GPU '", job.cluster.gpu, "' is unknown"),
        {.where = "--cluster", .remedy = cat("use one of ", listed(planner::processor_names()))});
  }
  job.processor = *processor;
  job.precision = o.precision == "fp8" ? planner::Precision::eight : planner::Precision::half;
  job.software = planner::software_named(o.software);
  job.has_flash_attention = !planner::is_of_2021(job.software);
  return job;
}

planner::Constraints constraints_of(const PlanOptions& o) {
  planner::Constraints constraints = o.constraints;
  for (const auto kind :
       {planner::Recompute::none, planner::Recompute::selective, planner::Recompute::full}) {
    if (name(kind) == o.recompute) constraints.recompute = kind;
  }
  if (!o.max_memory.empty()) constraints.memory = static_cast<double>(parse_bytes(o.max_memory));
  constraints.least_mfu = o.min_mfu / 100;
  return constraints;
}

double days_of(const PlanOptions& o, const planner::Job& job, double step_s) {
  const auto tokens = parse_tokens(o.tokens);
  if (!tokens) {
    throw Error(ErrorCode::invalid_argument,
                cat("--tokens '", o.tokens, "' is not a number of tokens"),
                {.remedy = "write it as 300B or 1.4T"});
  }
  constexpr double kDay = 24 * 3600;
  const double a_step = static_cast<double>(job.global_batch * job.sequence);
  return static_cast<double>(*tokens) / a_step * step_s / kDay;
}

planner::Plans plans_on_cluster(const PlanOptions& o, const planner::Job& job) {
  constexpr size_t kKept = 200;
  return search(job, constraints_of(o), efficiencies_of(o), kKept);
}

int plan_layouts(const PlanOptions& o) {
  const planner::Job job = job_of(o);
  const planner::Plans plans =
      o.cluster == kThisHost ? plans_on_this_host(o, job) : plans_on_cluster(o, job);
  const double parameters = static_cast<double>(planner::parameters(job.model));
  const bool is_large = parameters >= 1e8;
  std::printf(
      "%s, %.2f %s parameters, on %s: %d %s; batch %lld of %lld tokens\n"
      "%zu legal layouts, of which %zu fit\n",
      job.model.name.c_str(), parameters / (is_large ? 1e9 : 1e6), is_large ? "B" : "M",
      o.cluster.c_str(), job.cluster.ranks(), job.processor.name.c_str(),
      static_cast<long long>(job.global_batch), static_cast<long long>(job.sequence),
      plans.considered, plans.fitting);
  Json document = {{"model", job.model.name},
                   {"parameters", planner::parameters(job.model)},
                   {"cluster", o.cluster},
                   {"gpus", job.cluster.ranks()},
                   {"global_batch", job.global_batch},
                   {"seq", job.sequence},
                   {"legal", plans.considered},
                   {"fitting", plans.fitting},
                   {"layouts", Json::array()}};
  for (const PlannedLayout& planned : plans.layouts) {
    Json layout = to_json(job, planned);
    if (!o.tokens.empty()) layout["days"] = days_of(o, job, planned.time.total());
    document["layouts"].push_back(std::move(layout));
  }
  if (!o.json.empty()) write_file(o.json, document.dump(2) + "\n");
  const PlannedLayout& best = plans.layouts.front();
  if (plans.fitting == 0) {
    throw Error(
        ErrorCode::unsupported, "no layout fits",
        {.cause = cat("the layout that comes closest, ", to_text(best.layout), ", needs ",
                      human_bytes(static_cast<uint64_t>(best.memory.total())), " per processor",
                      o.min_mfu > 0 ? ", or no layout reaches --min-mfu" : ""),
         .remedy =
             "use more processors, a smaller batch or shorter sequences, or remove a fixed axis"});
  }
  for (size_t i = 0; i < std::min(plans.fitting, static_cast<size_t>(o.show)); ++i) {
    if (i < plans.layouts.size()) print(job, plans.layouts[i]);
  }
  if (!o.tokens.empty()) {
    std::printf("%s tokens take %.1f days with the best layout.\n", o.tokens.c_str(),
                days_of(o, job, best.time.total()));
  }
  if (!o.plot.empty()) {
    const double ranks = job.cluster.ranks();
    const bool is_here = o.cluster == kThisHost;
    write_file(o.plot,
               picture_of(job, best, is_here ? std::max(1.0, ranks / usable_processors()) : 1));
  }
  if (o.why) print_why(plans);
  const std::string command = train_command(job, best.layout);
  if (!command.empty()) std::printf("\n%s\n", command.c_str());
  return 0;
}

}  // namespace tutti::tool
