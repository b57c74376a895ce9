#include "training/planner/search.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training::planner {

namespace {

std::vector<int> divisors(int64_t number, int64_t most) {
  std::vector<int> found;
  for (int64_t d = 1; d <= std::min(number, most); ++d) {
    if (number % d == 0) found.push_back(static_cast<int>(d));
  }
  return found;
}

// Returns all values, or only the fixed one.
template <typename T>
std::vector<T> choices(const std::optional<T>& fixed, std::vector<T> all) {
  if (fixed) return {*fixed};
  return all;
}

class Search {
 public:
  Search(const Job& job, const Constraints& constraints, const Efficiencies& efficiencies,
         size_t most)
      : job_(job),
        constraints_(constraints),
        e_(efficiencies),
        most_(most),
        ranks_(job.cluster.ranks()) {
    memory_ = constraints.memory > 0 ? constraints.memory : 0.9 * job.processor.memory_GiB * kGiB;
  }

  Plans run() {
    const int64_t most_tensor = std::max<int64_t>(job_.cluster.gpus, 8);
    for (const int tensor : choices(constraints_.tensor, divisors(job_.model.heads, most_tensor))) {
      for (const int stages : choices(constraints_.stages, divisors(ranks_, job_.model.layers))) {
        for (const int context : choices(constraints_.context, divisors(ranks_, kMostContext))) {
          add_data(tensor, stages, context);
        }
      }
    }
    if (plans_.considered == 0) {
      throw Error(
          ErrorCode::invalid_argument,
          cat("no layout of ", ranks_, " processors is valid for ", job_.model.name,
              " and a batch of ", job_.global_batch),
          {.cause = first_reason_,
           .remedy = "leave an axis unspecified, or change the batch or the number of processors"});
    }
    keep_best(most_);
    return std::move(plans_);
  }

 private:
  static constexpr int64_t kMostContext = 64;
  static constexpr int64_t kMostMicroBatch = 32;

  void add_data(int tensor, int stages, int context) {
    const int64_t cut = int64_t{tensor} * stages * context;
    if (ranks_ % cut != 0) return;
    Layout layout{.tensor = tensor, .stages = stages, .context = context};
    layout.data = static_cast<int>(ranks_ / cut);
    if (constraints_.data && *constraints_.data != layout.data) return;
    layout.sequence_parallel = tensor > 1 && !is_of_2021(job_.software);
    const std::vector<int> experts =
        job_.model.experts.count > 0
            ? divisors(job_.model.experts.count, int64_t{tensor} * layout.data * context)
            : std::vector<int>{1};
    for (const int expert : choices(constraints_.expert, experts)) {
      layout.expert = expert;
      add_micro_batches(layout);
    }
  }

  void add_micro_batches(Layout layout) {
    const int64_t each = job_.global_batch / layout.data;
    std::vector<int64_t> sizes;
    for (const int size : divisors(std::max<int64_t>(1, each), kMostMicroBatch)) {
      sizes.push_back(size);
    }
    for (const int64_t size : choices(constraints_.micro_batch, std::move(sizes))) {
      layout.micro_batch = size;
      const std::vector<int> chunks =
          layout.stages > 1 ? divisors(job_.model.layers / layout.stages, 16) : std::vector<int>{1};
      for (const int virtual_stages : choices(constraints_.virtual_stages, chunks)) {
        layout.virtual_stages = virtual_stages;
        for (const int zero : choices(constraints_.zero, {0, 1, 2, 3})) {
          layout.zero = zero;
          for (const Recompute recompute :
               choices(constraints_.recompute,
                       {Recompute::none, Recompute::selective, Recompute::full})) {
            layout.recompute = recompute;
            add(layout);
          }
        }
      }
    }
  }

  void add(const Layout& layout) {
    std::string reason = why_illegal(job_, layout);
    if (!reason.empty()) {
      if (first_reason_.empty()) first_reason_ = std::move(reason);
      return;
    }
    PlannedLayout planned = price(job_, layout, e_, memory_);
    planned.fits &= planned.mfu >= constraints_.least_mfu;
    ++plans_.considered;
    if (planned.fits) ++plans_.fitting;
    plans_.layouts.push_back(std::move(planned));
    if (plans_.layouts.size() >= 4096 + most_) keep_best(most_);
  }

  void keep_best(size_t most) {
    const size_t kept = std::min(most, plans_.layouts.size());
    std::ranges::partial_sort(
        plans_.layouts, plans_.layouts.begin() + static_cast<std::ptrdiff_t>(kept), is_better);
    plans_.layouts.resize(kept);
  }

  const Job& job_;
  const Constraints& constraints_;
  const Efficiencies& e_;
  size_t most_;
  int64_t ranks_;
  double memory_;
  std::string first_reason_;
  Plans plans_;
};

}  // namespace

bool is_better(const PlannedLayout& a, const PlannedLayout& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return a.memory.total() < b.memory.total();
  const double x = a.time.total();
  const double y = b.time.total();
  return x != y ? x < y : a.memory.total() < b.memory.total();
}

std::string why_illegal(const Job& job, const Layout& l) {
  const ModelShape& m = job.model;
  const int64_t each = job.global_batch / l.data;
  if (is_of_2021(job.software) && (l.context > 1 || l.sequence_parallel)) {
    return cat(name(job.software), " does not split sequences");
  }
  if (l.ranks() != job.cluster.ranks()) {
    return cat(l.ranks(), " ranks are not the cluster's ", job.cluster.ranks());
  }
  if (m.heads % l.tensor != 0) return cat(m.heads, " heads cannot be divided by tp ", l.tensor);
  if (m.kv_heads % l.tensor != 0 && l.tensor % m.kv_heads != 0) {
    return cat(m.kv_heads, " key heads cannot be divided by tp ", l.tensor);
  }
  if (l.stages > m.layers) return cat(m.layers, " layers cannot be divided by pp ", l.stages);
  if (job.global_batch % l.data != 0 || each % l.micro_batch != 0) {
    return cat("a batch of ", job.global_batch, " cannot be divided by dp ", l.data,
               " and micro-batches of ", l.micro_batch);
  }
  if (l.context > 1 && job.sequence % (2 * l.context) != 0) {
    return cat("sequences of ", job.sequence, " cannot be divided by cp ", l.context);
  }
  if (m.experts.count == 0 && l.expert > 1) return "the model has no experts";
  const int64_t in_stage = int64_t{l.tensor} * l.data * l.context;
  if (l.expert > 1 &&
      (m.experts.count % l.expert != 0 || in_stage % (int64_t{l.expert} * l.expert_tensor) != 0)) {
    return cat(m.experts.count, " experts on tp x dp x cp = ", in_stage,
               " ranks cannot be divided by ep ", l.expert);
  }
  if (l.virtual_stages > 1) {
    const int64_t chunks = int64_t{l.stages} * l.virtual_stages;
    if (l.stages == 1) return "virtual stages require a pipeline";
    if (m.layers % chunks != 0) return cat(m.layers, " layers cannot be divided into ", chunks);
    if (each / l.micro_batch % l.stages != 0) {
      return cat("interleaving requires a multiple of ", l.stages, " micro-batches");
    }
  }
  if (l.zero < 0 || l.zero > 3) return cat("unknown ZeRO stage ", l.zero);
  return "";
}

double mfu(const Job& job, const Layout& layout, double seconds) {
  return count(job.global_batch) * model_operations(job.model, job.sequence) /
         (seconds * layout.ranks() * peak_of(job));
}

PlannedLayout price(const Job& job, const Layout& layout, const Efficiencies& efficiencies,
                    double memory) {
  PlannedLayout planned{.layout = layout, .time = step_time(job, layout, efficiencies)};
  planned.seconds = time_interval(job, planned.time.total());
  planned.memory = memory_use(job, layout, memory_rules(job.software));
  planned.fits = planned.memory.total() <= memory;
  planned.mfu = mfu(job, layout, planned.time.total());
  return planned;
}

Plans search(const Job& job, const Constraints& constraints, const Efficiencies& efficiencies,
             size_t most) {
  return Search(job, constraints, efficiencies, most).run();
}

std::vector<std::string> model_options(const Job& job) {
  const ModelShape& m = job.model;
  if (m.latent.kv_rank > 0 || job.precision == Precision::eight || m.experts.shared > 0 ||
      m.experts.dense_layers > 0) {
    return {};
  }
  const bool mixture = m.experts.count > 0;
  std::vector<std::string> options = {cat("--model=", mixture   ? "mixtral"
                                                      : m.gated ? "llama"
                                                                : "gpt2"),
                                      cat("--layers=", m.layers), cat("--width=", m.hidden),
                                      cat("--heads=", m.heads)};
  if (m.gated && m.kv_heads != m.heads) options.push_back(cat("--kv-heads=", m.kv_heads));
  if (m.gated && m.head_width * m.heads != m.hidden) {
    options.push_back(cat("--head-size=", m.head_width));
  }
  options.push_back(cat("--ffn-hidden-size=", mixture ? m.experts.hidden : m.feed_forward));
  if (mixture) {
    options.push_back(cat("--experts=", m.experts.count));
    options.push_back(cat("--topk=", m.experts.chosen));
  }
  options.push_back(cat("--vocabulary=", m.vocabulary));
  options.push_back(cat("--context=", job.sequence));
  options.push_back(cat("--batch=", job.global_batch));
  if (job.precision == Precision::half) options.emplace_back("--precision=bf16");
  return options;
}

std::string train_command(const Job& job, const Layout& layout) {
  std::vector<std::string> options = model_options(job);
  if (options.empty()) return "";
  options.push_back(cat("--ranks=", layout.ranks()));
  for (std::string& option : train_options(layout)) options.push_back(std::move(option));
  std::string text = "tutti train";
  for (std::string& option : options) {
    const size_t equals = option.find('=');
    if (equals != std::string::npos) option[equals] = ' ';
    text += cat(' ', option);
  }
  return text;
}

}  // namespace tutti::training::planner
