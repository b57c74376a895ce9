#include "training/planner/step_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "training/planner/layer_time.h"

namespace tutti::training::planner {

namespace {

// Returns the bytes of a gradient in sums over data ranks.
double gradient_bytes(Software software) { return software == Software::megatron_2021 ? 2 : 4; }

// Seconds of forward and backward of a layer, including recomputation.
struct Pass {
  double computing = 0;
  double tensor = 0;
  double context = 0;
  double dispatch = 0;
  double all() const { return computing + tensor + context + dispatch; }
};

// Returns the seconds that backward spends on recomputing the forward pass.
double again(const Job& job, const Layout& layout, const LayerTime& forward) {
  switch (layout.recompute) {
    case Recompute::none:
      return 0;
    case Recompute::selective: {
      if (!job.has_flash_attention) return forward.attention;
      // Megatron recomputes cheap operators; FSDP's selective checkpointing recomputes every other
      // product as well.
      const double part = is_fsdp(job.software) ? 0.35 : 0.1;
      return part * forward.computing();
    }
    case Recompute::full:
      return forward.computing();
  }
  return 0;
}

Pass pass_of(const Job& job, const Layout& layout, const LayerTime& f) {
  const double of_attention = job.has_flash_attention ? 2.5 : 2;
  const double backward = 2 * (f.products + f.bytes) + of_attention * f.attention;
  const bool all_again = layout.recompute == Recompute::full;
  const double times = all_again ? 3 : 2;  // number of times that forward's communication occurs
  Pass pass;
  pass.computing = std::max(f.computing(), f.launches) + std::max(backward, 2 * f.launches) +
                   again(job, layout, f);
  pass.tensor = times * f.tensor;
  pass.context = (times + 1) * f.context;
  pass.dispatch = times * f.dispatch;
  return pass;
}

void add(const Pass& pass, double times, Pass& to) {
  to.computing += times * pass.computing;
  to.tensor += times * pass.tensor;
  to.context += times * pass.context;
  to.dispatch += times * pass.dispatch;
}

struct RankParameters {
  double dense = 0;
  double expert = 0;
};

class Pricing {
 public:
  Pricing(const Job& job, const Layout& layout, const Efficiencies& e)
      : job_(job), layout_(layout), e_(e), micro_batches_(micro_batches_of(job, layout)) {}

  StepTime price() {
    price_stage();
    price_pipeline();
    price_parameters();
    if (layout_.zero == 3 || is_fsdp(job_.software)) {
      price_gathers();
    } else {
      price_sums();
    }
    price_update();
    return time_;
  }

 private:
  // Predicts the time of the slowest stage. Layers are distributed evenly; if that is impossible,
  // the last stage, which has the output layer, has fewer layers.
  void price_stage() {
    const ModelShape& m = job_.model;
    Pass model;
    const auto sparse = count(m.sparse_layers());
    if (sparse < count(m.layers)) {
      add(pass_of(job_, layout_, layer_time(job_, layout_, e_, false)), count(m.layers) - sparse,
          model);
    }
    if (sparse > 0) add(pass_of(job_, layout_, layer_time(job_, layout_, e_, true)), sparse, model);
    const double output = output_time(job_, layout_, e_);
    const double p = layout_.stages;
    const bool even = m.layers % layout_.stages == 0;
    const double part = even ? 1 / p : std::ceil(count(m.layers) / p) / count(m.layers);
    add(model, part, stage_);
    if (even) {
      stage_.computing += output;
    } else {
      stage_.computing += std::max(0.0, (model.all() + output) / p - stage_.all());
    }
    inner_ = part * model.all();
    time_.computing = micro_batches_ * stage_.computing;
    time_.tensor = micro_batches_ * stage_.tensor;
    time_.context = micro_batches_ * stage_.context;
    time_.dispatch = micro_batches_ * stage_.dispatch;
  }

  void price_pipeline() {
    if (layout_.stages == 1) return;
    time_.bubble = (layout_.stages - 1) * inner_ / layout_.virtual_stages;
    const double values = tokens_of(job_, layout_) * count(job_.model.hidden) / layout_.tensor;
    const int away = layout_.tensor * layout_.context * layout_.data;
    const double one = message_seconds(job_.cluster, away, kHalfBytes * values);
    const double exposed = is_of_2021(job_.software) ? 1 : 0.3;
    time_.transfers =
        2 * one * (exposed * micro_batches_ * layout_.virtual_stages + layout_.stages - 1);
  }

  void price_parameters() {
    const ModelShape& m = job_.model;
    const auto sparse = count(m.sparse_layers());
    const LayerParameters dense = layer_parameters(m, false);
    const LayerParameters mixed = layer_parameters(m, m.experts.count > 0);
    const double all = (count(m.layers) - sparse) * count(dense.all()) +
                       sparse * count(mixed.all() - mixed.expert);
    const double ends = 2 * count(padded_vocabulary(job_, layout_)) * count(m.hidden);
    const double cut = layout_.tensor * layout_.stages;
    mine_.dense = (all + ends) / cut;
    mine_.expert =
        sparse * count(mixed.expert) / layout_.stages / layout_.expert / layout_.expert_tensor;
  }

  double collective(const Group& group, Collective what, double bytes) const {
    return collective_seconds(job_.cluster, group, what, bytes);
  }

  double sums_of(const Group& group, double parameters) const {
    const double gradients = gradient_bytes(job_.software) * parameters;
    if (layout_.zero == 0) return collective(group, Collective::all_reduce, gradients);
    return collective(group, Collective::reduce_scatter, gradients) +
           collective(group, Collective::all_gather, kHalfBytes * parameters);
  }

  // Predicts the time of the gradient sums that computation does not hide (with ZeRO, of the
  // parameters' all-gathers too). Software of is_of_2021() hides none of it. Other software hides
  // up to 80% of the time of a micro-batch's passes, but at most 90% of the sums.
  void price_sums() {
    double all = sums_of(data_group(layout_), mine_.dense);
    if (mine_.expert > 0) all += sums_of(expert_data_group(layout_), mine_.expert);
    const double hidden = is_of_2021(job_.software) ? 0 : 0.8 * stage_.all();
    time_.sums = std::max(all - hidden, is_of_2021(job_.software) ? all : 0.1 * all);
  }

  void price_gathers() {
    const Group group = data_group(layout_);
    if (group.ranks == 1) return;
    const double computing = time_.computing + time_.tensor + time_.context + time_.dispatch;
    const double mine = mine_.dense + mine_.expert;
    if (is_of_2021(job_.software)) {
      // Each parameter is gathered separately, over the links of a host or, between hosts, over the
      // rank's own network card.
      const double GBps = group.ranks * layout_.tensor <= job_.cluster.gpus
                              ? job_.cluster.inside.GBps
                              : job_.cluster.between.GBps / job_.cluster.gpus;
      const double all = 3 * kHalfBytes * mine / (1e9 * GBps * e_[Knob::gathers_2021]);
      time_.gathers = std::max(0.0, all - computing);
      return;
    }
    const double layers = count(job_.model.layers) / layout_.stages;
    const double layer = mine / layers;
    const double gather = collective(group, Collective::all_gather, kHalfBytes * layer);
    const double scatter = collective(group, Collective::reduce_scatter, 4 * layer);
    // ZeRO stage 3 gathers before each forward and each backward, other stages gather once.
    const double times = layout_.zero == 3 ? 2 * micro_batches_ : 1;
    const double all = layers * (times * gather + scatter);
    constexpr double kHidden =
        0.9;  // fraction of computation that can overlap; the first and the last layer cannot
    time_.gathers =
        std::max(0.0, all - kHidden * computing) + e_[Knob::slowed] * std::min(all, computing);
  }

  void price_update() {
    const double dense = mine_.dense / (layout_.zero > 0 ? data_group(layout_).ranks : 1);
    const double expert = mine_.expert / (layout_.zero > 0 ? expert_data_group(layout_).ranks : 1);
    constexpr double kOfMemory = 0.8;
    time_.update =
        ((dense + expert) * e_[Knob::update] + kHalfBytes * (mine_.dense + mine_.expert)) /
        (1e9 * job_.processor.memory_GBps * kOfMemory);
  }

  const Job& job_;
  const Layout& layout_;
  const Efficiencies& e_;
  double micro_batches_;
  Pass stage_;        // seconds of a micro-batch on the slowest stage
  double inner_ = 0;  // seconds of a micro-batch on a stage without the output layer
  RankParameters mine_;
  StepTime time_;
};

}  // namespace

StepTime step_time(const Job& job, const Layout& layout, const Efficiencies& efficiencies) {
  return Pricing(job, layout, efficiencies).price();
}

Interval time_interval(const Job& job, double seconds) {
  // Standard deviations of log(measured / predicted) over published runs (README.md).
  constexpr double kDense = 0.11;
  constexpr double kExperts = 0.35;
  return interval_around(seconds, job.model.experts.count > 0 ? kExperts : kDense);
}

std::string bound_of(const StepTime& time) {
  const std::array<std::pair<double, const char*>, 8> parts = {
      {{time.tensor, "sums of activations over tensor-parallel ranks"},
       {time.context, "keys and values of other context ranks"},
       {time.dispatch, "tokens on their way to experts"},
       {time.bubble, "the pipeline's bubble"},
       {time.transfers, "messages between stages"},
       {time.gathers, "gathers of parameters"},
       {time.sums, "sums of gradients"},
       {time.update, "the optimizer"}}};
  const auto largest = std::ranges::max_element(parts);
  constexpr double kMuch = 0.1;
  return largest->first > kMuch * time.total() ? largest->second : "computing";
}

}  // namespace tutti::training::planner
