#include "training/planner/model_shape.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training::planner {

namespace {

int64_t attention_parameters(const ModelShape& m) {
  const int64_t h = m.hidden;
  const LatentAttention& latent = m.latent;
  if (latent.kv_rank > 0) {
    const int64_t wide = m.head_width + latent.rope;
    const int64_t queries = latent.query_rank > 0
                                ? h * latent.query_rank + latent.query_rank * m.heads * wide
                                : h * m.heads * wide;
    const int64_t keys =
        h * (latent.kv_rank + latent.rope) + latent.kv_rank * m.heads * 2 * m.head_width;
    return queries + keys + m.heads * m.head_width * h;
  }
  const int64_t into = (m.heads + 2 * m.kv_heads) * m.head_width;
  const int64_t from = m.heads * m.head_width;
  return h * into + from * h + (m.has_biases ? into + h : 0);
}

int64_t feed_forward_parameters(const ModelShape& m, int64_t values) {
  const int64_t matrices = m.gated ? 3 : 2;
  return matrices * m.hidden * values + (m.has_biases ? (matrices - 1) * values + m.hidden : 0);
}

}  // namespace

LayerParameters layer_parameters(const ModelShape& m, bool sparse) {
  LayerParameters parts;
  parts.attention = attention_parameters(m);
  parts.norms = (m.has_biases ? 4 : 2) * m.hidden;
  if (!sparse) {
    parts.feed_forward = feed_forward_parameters(m, m.feed_forward);
    return parts;
  }
  const ExpertShape& e = m.experts;
  parts.feed_forward =
      m.hidden * e.count + (e.shared > 0 ? feed_forward_parameters(m, e.shared) : 0);
  parts.expert = e.count * feed_forward_parameters(m, e.hidden);
  return parts;
}

int64_t parameters(const ModelShape& m) {
  const int64_t sparse = m.sparse_layers();
  int64_t all = (m.layers - sparse) * layer_parameters(m, false).all();
  if (sparse > 0) all += sparse * layer_parameters(m, true).all();
  all += (m.tied ? 1 : 2) * m.vocabulary * m.hidden;
  return all + m.positions * m.hidden + (m.has_biases ? 2 : 1) * m.hidden;
}

int64_t active_parameters(const ModelShape& m) {
  const int64_t sparse = m.sparse_layers();
  int64_t all = (m.layers - sparse) * layer_parameters(m, false).all();
  if (sparse > 0) {
    const LayerParameters parts = layer_parameters(m, true);
    all +=
        sparse * (parts.all() - parts.expert + parts.expert / m.experts.count * m.experts.chosen);
  }
  return all;
}

void require_possible(const ModelShape& m) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, cat("model '", m.name, "' ", what),
                {.remedy = "correct the model's sizes"});
  };
  constexpr int64_t kMost = int64_t{1} << 32;
  for (const auto& [size, what] : {std::pair(m.layers, "layers"),
                                   {m.hidden, "hidden values"},
                                   {m.heads, "heads"},
                                   {m.kv_heads, "key heads"},
                                   {m.head_width, "values of a head"},
                                   {m.feed_forward, "feed-forward values"},
                                   {m.vocabulary, "words"}}) {
    if (size < 1 || size > kMost) refuse(cat("has ", size, " ", what));
  }
  const ExpertShape& e = m.experts;
  for (const int64_t size : {e.count, e.chosen, e.hidden, e.shared, m.positions}) {
    if (size < 0 || size > kMost) refuse(cat("has a size of ", size));
  }
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const double widest = std::max({number(m.feed_forward), number(m.heads) * number(m.head_width),
                                  number(e.count) * number(e.hidden)});
  const double all = number(m.layers) * 20 * number(m.hidden) * widest;
  constexpr double kMostParameters = 1e18;
  if (all + 4 * number(m.vocabulary) * number(m.hidden) > kMostParameters) {
    refuse("has more than 1e18 parameters");
  }
}

double model_operations(const ModelShape& m, int64_t sequence) {
  const auto s = static_cast<double>(sequence);
  const double products = static_cast<double>(active_parameters(m) + m.vocabulary * m.hidden);
  const double width =
      static_cast<double>(m.heads) * static_cast<double>(m.head_width + m.latent.rope / 2);
  return 6 * s * products + 12 * static_cast<double>(m.layers) * width * s * s;
}

}  // namespace tutti::training::planner
