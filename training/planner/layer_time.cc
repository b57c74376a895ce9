#include "training/planner/layer_time.h"

#include <algorithm>
#include <cmath>

namespace tutti::training::planner {

namespace {

// Predicts the times of operators on one processor.
class Roofline {
 public:
  Roofline(const Job& job, const Efficiencies& efficiencies)
      : multiprocessors_(job.processor.multiprocessors),
        rate_(peak_of(job) *
              efficiencies.products(job.processor, job.precision == Precision::eight) /
              efficiencies.time_of(job.software)),
        bandwidth_(1e9 * job.processor.memory_GBps * efficiencies[Knob::memory]),
        written_(efficiencies[Knob::written]) {}

  // Returns the time of an m x k by k x n product. Tiles of 128 x 256 results are computed in waves
  // of one tile per multiprocessor, and the last wave may be partly idle. Products whose sizes are
  // not multiples of 8 or 64 are slower. A fraction of the output is written without overlap.
  double product(double m, double n, double k) const {
    const double rows = std::ceil(m / 128);
    const double columns = std::ceil(n / 128);
    const double rounds = rows * columns / 2 / multiprocessors_;
    const double filled = rounds / std::ceil(rounds) * (m * n) / (rows * columns * 128 * 128);
    return 2 * m * n * k / (rate_ * std::max(filled, 0.3) * aligned(n, k)) +
           written_ * moved(kHalfBytes * m * n);
  }
  double moved(double bytes) const { return bytes / bandwidth_; }

 private:
  static double aligned(double n, double k) {
    double part = 1;
    for (const double d : {n, k}) {
      if (std::fmod(d, 8) != 0) part = std::min(part, 0.4);
      if (std::fmod(d, 64) != 0) part = std::min(part, 0.85);
    }
    return part;
  }

  double multiprocessors_;
  double rate_;
  double bandwidth_;
  double written_;
};

double projections(const Job& job, const Layout& layout, const Roofline& on) {
  const ModelShape& m = job.model;
  const double T = tokens_of(job, layout);
  const double h = count(m.hidden);
  const double t = layout.tensor;
  const double heads = count(m.heads * m.head_width) / t;
  if (m.latent.kv_rank > 0) {
    const double wide = count(m.heads * (m.head_width + m.latent.rope)) / t;
    const double keys = count(m.latent.kv_rank);
    const double queries = count(m.latent.query_rank);
    const double of_queries = queries > 0 ? on.product(T, queries, h) + on.product(T, wide, queries)
                                          : on.product(T, wide, h);
    return of_queries + on.product(T, keys + count(m.latent.rope), h) +
           on.product(T, 2 * heads, keys) + on.product(T, h, heads);
  }
  const double into = count((m.heads + 2 * m.kv_heads) * m.head_width) / t;
  return on.product(T, into, h) + on.product(T, h, heads);
}

double attention(const Job& job, const Layout& layout, const Efficiencies& e, const Roofline& on) {
  const ModelShape& m = job.model;
  const double T = tokens_of(job, layout);
  const double s = count(job.sequence);
  const double heads = count(m.heads) / layout.tensor;
  const double width = count(m.head_width) + count(m.latent.rope) / 2;
  const double operations = 4 * T * s * heads * width;
  const double peak = 1e12 * job.processor.half_TFLOPs;
  if (job.has_flash_attention) {
    // the causal mask halves the operations
    return operations / 2 / (peak * e.attention(job.processor, job.software));
  }
  // Bytes per score that the product, the softmax and the dropout read and write.
  constexpr double kBytesOfAScore = 11;
  const double aligned = m.head_width % 8 == 0 ? 1 : 0.15;
  return operations / (peak * e[Knob::attention_parts] * aligned) +
         on.moved(kBytesOfAScore * heads * s * T);
}

double feed_forward(const ModelShape& m, double tokens, double values, const Roofline& on) {
  return on.product(tokens, (m.gated ? 2 : 1) * values, count(m.hidden)) +
         on.product(tokens, count(m.hidden), values);
}

// Returns the time of experts, assuming balanced routing. Tensor-parallel ranks that do not share
// experts process different tokens.
double experts(const Job& job, const Layout& layout, const Efficiencies& e, const Roofline& on) {
  const ExpertShape& shape = job.model.experts;
  const double T = tokens_of(job, layout);
  const double here = std::max(1.0, count(shape.count) / layout.expert);
  const double mine = T * layout.expert_tensor / layout.tensor;
  const double each = mine * count(shape.chosen) / here;
  const double values = count(shape.hidden) / layout.expert_tensor;
  const double slower = e.products(job.processor, false) / e[Knob::experts];
  double seconds = here * feed_forward(job.model, each, values, on) * slower;
  if (shape.shared > 0) {
    seconds += feed_forward(job.model, T, count(shape.shared) / layout.tensor, on);
  }
  return seconds;
}

// Returns the expected number of copies of a token that are sent: on one host, one to each of the k
// chosen experts; on H hosts, one to each host with a chosen expert. If choices are uniform, the
// number of such hosts is H (1 - (1 - 1/H)^k).
double copies_of_token(const Job& job, const Group& group) {
  const double chosen = count(job.model.experts.chosen);
  const double here = std::clamp(job.cluster.gpus / group.stride, 1, group.ranks);
  const double hosts = group.ranks / here;
  return hosts > 1 ? hosts * (1 - std::pow(1 - 1 / hosts, chosen)) : chosen;
}

double other_bytes(const Job& job, const Layout& layout, bool sparse) {
  const ModelShape& m = job.model;
  const double T = tokens_of(job, layout);
  const double h = count(m.hidden);
  const double rows = layout.sequence_parallel ? T / layout.tensor : T;
  const double values =
      count(sparse ? m.experts.chosen * m.experts.hidden + m.experts.shared : m.feed_forward) /
      layout.tensor;
  const double of_activations = m.gated ? 5 : 4;
  double bytes = kHalfBytes * (10 * rows * h + of_activations * T * values);
  // Copies of tokens are sorted by expert, and the outputs are sorted back.
  if (sparse) bytes += kHalfBytes * 6 * T / layout.tensor * count(m.experts.chosen) * h;
  return bytes;
}

}  // namespace

LayerTime layer_time(const Job& job, const Layout& layout, const Efficiencies& e, bool sparse) {
  constexpr double kKernels = 22;
  constexpr double kLaunch = 6e-6;
  const Roofline on(job, e);
  const ModelShape& m = job.model;
  const double T = tokens_of(job, layout);
  LayerTime time;
  time.products = projections(job, layout, on) +
                  (sparse ? experts(job, layout, e, on)
                          : feed_forward(m, T, count(m.feed_forward) / layout.tensor, on));
  time.attention = attention(job, layout, e, on);
  time.bytes = on.moved(other_bytes(job, layout, sparse)) * e.bytes_of(job.software);
  time.launches = kKernels * kLaunch * (sparse ? 1.5 : 1);
  // fraction of the tensor-parallel sums that overlaps with products
  const double hidden = job.software == Software::megatron ? 0.5 : 0;
  time.tensor = (1 - hidden) * 2 *
                collective_seconds(job.cluster, tensor_group(layout), Collective::all_reduce,
                                   kHalfBytes * T * count(m.hidden));
  if (job.software == Software::deepspeed) {
    time.tensor += 2e-3 * e[Knob::start_deepspeed] * (layout.tensor - 1);
  }
  if (layout.context > 1) {
    const double keys = 2 * kHalfBytes * T * count(m.kv_heads * m.head_width) / layout.tensor;
    const double all = collective_seconds(job.cluster, context_group(layout),
                                          Collective::all_gather, keys * layout.context);
    // Each step of the ring launches kernels. Merging partial results, and imbalance, cost about
    // 10% of attention's time (zigzag rings; Zhu, 2024).
    constexpr double kOfARank = 35e-6;
    constexpr double kMerges = 0.11;
    const double rings = std::max(all, (layout.context - 1) * kOfARank);
    time.context = std::max(0.0, rings - time.attention) + kMerges * time.attention;
  }
  if (sparse && layout.expert > 1) {
    constexpr double kUsual = 0.6;
    const Group group = expert_group(layout);
    time.dispatch = 2 * kUsual / e[Knob::dispatch] *
                    collective_seconds(job.cluster, group, Collective::all_to_all,
                                       kHalfBytes * T / layout.tensor *
                                           copies_of_token(job, group) * count(m.hidden));
  }
  return time;
}

double output_time(const Job& job, const Layout& layout, const Efficiencies& e) {
  const Roofline on(job, e);
  const double T = tokens_of(job, layout);
  const double words = count(padded_vocabulary(job, layout)) / layout.tensor;
  constexpr double kPasses = 3;  // one product in forward, two in backward
  constexpr double kBytesOfALogit = 8;
  return kPasses *
         (on.product(T, words, count(job.model.hidden)) + on.moved(kBytesOfALogit * T * words));
}

}  // namespace tutti::training::planner
