#include "training/planner/memory.h"

#include <algorithm>
#include <cmath>

#include "training/planner/layer_time.h"

namespace tutti::training::planner {

namespace {

// Returns the activations without flash attention (Korthikanti et al., 2022): s b h (10 + 24 / t +
// 5 a s / (h t)); sequence parallelism divides the first term by t, too.
double kept_of_gpt(const Job& job, const Layout& layout) {
  const double t = layout.tensor;
  const double T = tokens_of(job, layout);
  const double h = count(job.model.hidden);
  const double scores = layout.recompute == Recompute::selective
                            ? 0
                            : 5 * count(job.model.heads) * count(job.sequence) / t;
  return T * ((layout.sequence_parallel ? 10 / t : 10) * h + 24 * h / t + scores);
}

double kept_with_flash(const Job& job, const Layout& layout, bool sparse) {
  const ModelShape& m = job.model;
  const double t = layout.tensor;
  const double T = tokens_of(job, layout);
  const double rows = layout.sequence_parallel ? T / t : T;
  const double h = count(m.hidden);
  // queries, keys, values and output
  const double heads = count((2 * m.heads + 2 * m.kv_heads) * m.head_width) / t;
  const double values = count(m.feed_forward) / t;
  const double matrices = m.gated ? 3 : 2;
  double bytes = kHalfBytes * (4 * rows * h + T * heads);
  if (sparse) {
    const ExpertShape& e = m.experts;
    bytes += kHalfBytes * T / t * count(e.chosen) * (2 * h + matrices * count(e.hidden));
    bytes += kHalfBytes * T / t * matrices * count(e.shared);
    if (!job.has_flash_attention) bytes += 5 * T * count(m.heads * job.sequence) / t;
  } else {
    bytes += kHalfBytes * T * matrices * values;
  }
  return bytes;
}

}  // namespace

double activations_of_layer(const Job& job, const Layout& layout, bool sparse) {
  const double input = kHalfBytes * tokens_of(job, layout) * count(job.model.hidden) /
                       (layout.sequence_parallel ? layout.tensor : 1);
  if (layout.recompute == Recompute::full) return input;
  if (!job.has_flash_attention && !sparse) return kept_of_gpt(job, layout);
  const double all = kept_with_flash(job, layout, sparse);
  constexpr double kSelective = 0.6;
  return layout.recompute == Recompute::selective ? std::max(input, kSelective * all) : all;
}

MemoryRules memory_rules(Software software) {
  if (software == Software::deepspeed) {
    // states include flattened copies, context includes two buckets
    return {.states = 18, .logit = 6, .context = 2e9};
  }
  // FSDP keeps parameters in 32 bits, and its loss copies the logits.
  const double logit = software == Software::fsdp_2023 ? 8 : 12;
  if (is_fsdp(software)) return {.parameter = 4, .gradient = 4, .states = 8, .logit = logit};
  return {};
}

Interval memory_interval(double bytes) {
  constexpr double kFactor = 1.14;
  return {.low = bytes / kFactor, .high = bytes * kFactor};
}

namespace {

// Adds the bytes of `parameters` parameters, their gradients and optimizer states to `use`, sharded
// over `ranks` ranks according to the ZeRO stage.
void add_states(double parameters, int stage, double ranks, const MemoryRules& rules,
                MemoryUse& use) {
  use.parameters += parameters * rules.parameter / (stage >= 3 ? ranks : 1);
  use.gradients += parameters * rules.gradient / (stage >= 2 ? ranks : 1);
  use.states += parameters * rules.states / (stage >= 1 ? ranks : 1);
}

class Counting {
 public:
  Counting(const Job& job, const Layout& layout, const MemoryRules& rules)
      : job_(job), layout_(layout), rules_(rules) {}

  // Returns the activations of the first stage.
  double kept() const {
    const double p = layout_.stages;
    return kept_of_layers(0, count(job_.model.layers) / p, count(job_.model.sparse_layers()) / p);
  }

  MemoryUse of_stage(int stage) const {
    const ModelShape& m = job_.model;
    const bool first = stage == 0;
    const bool last = stage == layout_.stages - 1;
    const double p = layout_.stages;
    const double layers = std::ceil(count(m.layers) / p);
    const double sparse = std::ceil(count(m.sparse_layers()) / p);
    const LayerParameters dense = layer_parameters(m, false);
    const LayerParameters mixed = layer_parameters(m, m.experts.count > 0);
    const double t = layout_.tensor;
    const double words = count(padded_vocabulary(job_, layout_));
    double shared = (layers - sparse) * count(dense.all() - dense.norms) / t +
                    sparse * count(mixed.attention + mixed.feed_forward) / t +
                    layers * count(dense.norms);
    const double embedding = words * count(m.hidden) / t;
    if (first) shared += embedding + count(m.positions * m.hidden);
    if (last && (!first || !m.tied)) shared += embedding;
    const double expert = sparse * count(mixed.expert) / layout_.expert / layout_.expert_tensor;
    MemoryUse use;
    add_states(shared, layout_.zero, data_group(layout_).ranks, rules_, use);
    add_states(expert, layout_.zero, expert_data_group(layout_).ranks, rules_, use);
    use.activations = activations(stage, layers, sparse);
    if (last) use.buffers = output_bytes(words / t);
    if (layout_.zero == 3) {
      const double layer = (shared + expert) / layers;
      use.buffers += 3 * kHalfBytes * layer;  // values of two layers, gradients of one
    }
    use.other = rules_.context + rules_.gaps * use.total();
    return use;
  }

 private:
  // Returns the bytes of the activations in flight (Narayanan et al., 2021) for p stages and v
  // chunks per rank. With 1F1B, p - stage micro-batches are in flight, or all micro-batches of the
  // step if these are fewer. With interleaving, 2 (p - 1 - stage) + (v - 1) p + 1 chunks are, or
  // all chunks.
  double kept_of_layers(int stage, double layers, double sparse) const {
    const double p = layout_.stages;
    const double v = layout_.virtual_stages;
    const double micro_batches = std::max(1.0, micro_batches_of(job_, layout_));
    double in_flight = std::min(micro_batches, p - stage);
    if (v > 1) in_flight = std::min(micro_batches, (2 * (p - 1 - stage) + (v - 1) * p + 1) / v);
    const double dense = activations_of_layer(job_, layout_, false);
    const double mixed = activations_of_layer(job_, layout_, true);
    return in_flight * ((layers - sparse) * dense + sparse * mixed);
  }

  double activations(int stage, double layers, double sparse) const {
    double bytes = kept_of_layers(stage, layers, sparse);
    if (layout_.recompute == Recompute::full) {
      Layout whole = layout_;  // the layer that is being recomputed has all its activations
      whole.recompute = Recompute::none;
      bytes += activations_of_layer(job_, whole, sparse > 0);
    }
    return bytes;
  }

  double output_bytes(double words) const {
    return rules_.logit * tokens_of(job_, layout_) * words;
  }

  const Job& job_;
  const Layout& layout_;
  const MemoryRules& rules_;
};

}  // namespace

double zero_bytes(double parameters, int stage, double ranks, double states) {
  MemoryUse use;
  add_states(parameters, stage, ranks, {.gradient = kHalfBytes, .states = states}, use);
  return use.total();
}

double measured_memory(const Job& job, const Layout& layout, const MemoryRules& rules) {
  if (rules.measure == MemoryMeasure::all) return memory_use(job, layout, rules).total();
  const double kept = Counting(job, layout, rules).kept();
  if (rules.measure == MemoryMeasure::activations) return kept;
  Layout plain = layout;
  plain.recompute = Recompute::none;
  plain.sequence_parallel = false;
  return 100 * kept / Counting(job, plain, rules).kept();
}

std::vector<MemoryUse> memory_by_stage(const Job& job, const Layout& layout,
                                       const MemoryRules& rules) {
  const Counting counting(job, layout, rules);
  std::vector<MemoryUse> stages;
  for (int stage = 0; stage < layout.stages; ++stage) stages.push_back(counting.of_stage(stage));
  return stages;
}

MemoryUse memory_use(const Job& job, const Layout& layout, const MemoryRules& rules) {
  const Counting counting(job, layout, rules);
  const int last = layout.stages - 1;
  if (rules.last_stage || last == 0) return counting.of_stage(last);
  const MemoryUse first = counting.of_stage(0);
  const MemoryUse end = counting.of_stage(last);
  return first.total() >= end.total() ? first : end;
}

}  // namespace tutti::training::planner
