#include "training/models/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/models/decoder_units.h"
#include "training/models/sizes.h"
#include "training/parallel/convert_layout.h"
#include "training/parallel/heads_attention.h"
#include "training/parallel/ring_attention.h"

namespace tutti::training {
namespace {

// Throws unless each rank along the tensor axis gets the same number of whole query heads.
void require_even_heads(int64_t heads, int64_t ranks) {
  if (heads % ranks == 0) return;
  int64_t nearest = 1;
  for (int64_t number = 2; number <= std::min(heads, 2 * ranks); ++number) {
    if (heads % number == 0 && std::abs(number - ranks) < std::abs(nearest - ranks)) {
      nearest = number;
    }
  }
  throw Error(
      ErrorCode::invalid_argument,
      cat(heads, heads == 1 ? " head" : " heads", " cannot be sharded over ", ranks, " ranks"),
      {.where = "--tp", .remedy = cat("the nearest number of ranks is ", nearest)});
}

// Throws unless there is at least one item per rank. Ranks may get unequal numbers of the items.
void require_one_each(int64_t count, const char* what, int64_t ranks) {
  if (count >= ranks) return;
  throw Error(ErrorCode::invalid_argument,
              cat(count, ' ', what, " cannot be sharded over ", ranks, " ranks"),
              {.where = "--tp", .remedy = cat("use at most ", count, " ranks")});
}

// Creates the attention over context ranks. If heads are divided, each rank sends (p - 1) / p^2 of
// queries, keys, values and outputs; in a ring, it sends (p - 1) / p of keys and values.
std::shared_ptr<const AttentionOverRanks> attention_over(const DecoderOptions& options,
                                                         const MeshPlace& place) {
  const int64_t ranks = place.size(Axis::context);
  const int64_t heads = options.attention.heads / place.size(Axis::tensor);
  const int64_t all_keys =
      options.attention.key_heads == 0 ? options.attention.heads : options.attention.key_heads;
  const bool even = heads % ranks == 0 && all_keys % (ranks * place.size(Axis::tensor)) == 0;
  const bool sends_less = options.attention.heads + all_keys < ranks * all_keys;
  const ContextKind kind = options.compute.context;
  if (kind == ContextKind::heads || (kind == ContextKind::automatic && even && sends_less)) {
    return std::make_shared<HeadsAttention>();
  }
  return std::make_shared<RingAttention>();
}

void sum_over(Pass& pass, const MeshPlace& place, Axis axis, std::span<double> numbers) {
  if (place.size(axis) == 1) return;
  const ArenaScope scope(pass.arena);
  const auto count = std::ssize(numbers);
  const Tensor sums = pass.arena.take(DType::f64, count, 1);
  std::ranges::copy(numbers, sums.values<double>().begin());
  const Tensor found = convert_layout(pass, place, sums, {count, 1},
                                      ActivationLayout(axis, Spread::partial), kReplicated);
  std::ranges::copy(found.values<double>(), numbers.begin());
}

// Throws if the key heads cannot be divided evenly over the ranks, and a norm over all key heads
// would have to be divided with them.
void require_whole_key_heads(const SelfAttentionOptions& attention, int ranks) {
  const int64_t heads = attention.key_heads == 0 ? attention.heads : attention.key_heads;
  if (attention.head_norm != HeadNormKind::all_heads || heads % ranks == 0) return;
  throw Error(ErrorCode::invalid_argument,
              cat(heads, " key-value heads cannot be sharded over ", ranks, " ranks"),
              {.where = "--tp",
               .cause = "the model normalizes the keys of all heads together",
               .remedy = "use a number of ranks that divides them"});
}

void require_an_expert_each(const MixtureOptions& mixture, const MeshPlace& place) {
  const int64_t experts = mixture.router.experts;
  const int ranks = place.ranks_along(place.experts);
  if (experts == 0 || experts >= ranks) return;
  throw Error(ErrorCode::invalid_argument,
              cat(experts, " experts cannot be divided over ", ranks, " ranks"),
              {.where = "--ep", .remedy = cat("use at most ", experts, " ranks")});
}

DecoderOptions checked(DecoderOptions options, const MeshPlace& place) {
  const int tensor_ranks = place.size(Axis::tensor);
  require_size("number of layers", options.layers);
  require_size("number of heads", options.attention.heads);
  require_size("width", options.width);
  require_size("context", options.context);
  require_size("vocabulary", options.vocabulary);
  require_size("hidden width", options.mlp.hidden);
  require_even_heads(options.attention.heads, tensor_ranks);
  require_whole_key_heads(options.attention, tensor_ranks);
  require_one_each(options.mlp.hidden, "hidden values", tensor_ranks);
  require_one_each(options.vocabulary, "vocabulary entries", tensor_ranks);
  require_an_expert_each(options.mixture, place);
  if (!(options.dropout >= 0 && options.dropout < 1)) {  // written so that NaN is rejected as well
    throw Error(ErrorCode::invalid_argument, cat("invalid dropout probability ", options.dropout),
                {.remedy = "use a number of at least 0 and below 1"});
  }
  if (!(options.norm_epsilon >= 0 && std::isfinite(options.norm_epsilon))) {
    throw Error(ErrorCode::invalid_argument,
                cat("invalid epsilon of the normalizations: ", options.norm_epsilon),
                {.remedy = "use a small number such as 1e-5"});
  }
  if (options.attention.window < 0) {
    throw Error(ErrorCode::invalid_argument,
                cat("a token cannot attend to ", options.attention.window, " tokens"),
                {.where = "--attention-window", .remedy = "use at least 1, or 0 for all"});
  }
  if (options.context > options.max_context) {
    throw Error(ErrorCode::invalid_argument,
                cat("a model with a maximum context of ", options.max_context,
                    " tokens cannot have a context of ", options.context),
                {.where = "--context", .remedy = cat("use at most ", options.max_context)});
  }
  options.attention.width = options.mlp.width = options.width;
  options.attention.slices = options.compute.slices;
  if (options.attention.head_size == 0 && options.width % options.attention.heads == 0) {
    options.attention.head_size = options.width / options.attention.heads;
  }
  if (options.rope && options.attention.head_size > 0) {
    options.attention.rope =
        std::make_shared<Rope>(options.context, options.attention.head_size, *options.rope);
  }
  options.attention.over_ranks = attention_over(options, place);
  options.attention.head_norm_epsilon = options.norm_epsilon;
  options.attention.sum =
      options.mixture.router.sum = [place](Pass& pass, Axis axis, std::span<double> numbers) {
        sum_over(pass, place, axis, numbers);
      };
  // Each residual connection adds variance. As in GPT-2, the initial weights of output layers are
  // therefore scaled down.
  options.attention.output_deviation = options.mlp.output_deviation =
      kDecoderDeviation / std::sqrt(2 * static_cast<double>(options.layers));
  return options;
}

}  // namespace

Decoder::Decoder(DecoderOptions options, const MeshPlace& place)
    : Model(place), options_(checked(std::move(options), place)) {
  if (const RouterOptions& router = options_.mixture.router; router.experts > 0) {
    const bool is_needed =
        router.balance_loss > 0 && router.balance_scope == BalanceScope::global_batch;
    load_ =
        std::make_shared<ExpertLoad>(options_.layers, router.experts, is_needed, router.bias_rate);
  }
  add_unit<DecoderEmbedding>(options_);
  const Parameter* tied = options_.tied
                              ? static_cast<const DecoderEmbedding&>(*units_.front()).token_weight()
                              : nullptr;
  for (int64_t layer = 0; layer < options_.layers; ++layer) {
    add_unit<DecoderBlock>(options_, layer, load_);
  }
  add_unit<DecoderHead>(options_, tied);
}

// A deferred backward_weight needs the gradients of all logits (models/output_layer.cc).
int64_t Decoder::logits_at_once(const MicroBatch& batch, bool split) const {
  const int64_t all = batch.rows(options_.context);
  const int64_t chunk = options_.compute.loss_chunk;
  const MeshPlace& mesh = parameters_.mesh();
  return (chunk == 0 || split ? all : std::min(all, chunk)) *
         kTensorColumns.columns_at(mesh, options_.vocabulary);
}

std::vector<NamedBuffer> Decoder::buffers() {
  std::vector<NamedBuffer> buffers;
  if (options_.mixture.router.bias_rate == 0) return buffers;
  for (int64_t layer = 0; layer < options_.layers; ++layer) {
    buffers.push_back(
        {cat(options_.names.block, layer, '.', options_.names.mlp, ".gate.e_score_correction_bias"),
         load_->bias(layer), static_cast<int>(layer) + 1});
  }
  return buffers;
}

// Blocks run one after the other and use the same memory.
int64_t Decoder::message_bytes(const MicroBatch& batch, DType activations) const {
  return static_cast<const DecoderBlock&>(*units_[1]).message_bytes(batch, activations);
}

// Counts the values per token: queries, keys, values and the attention's output; hidden values
// before and after their activation; outputs of two normalizations, `middle` and the block's
// output; and statistics in the type of sums.
BlockActivations Decoder::block_activations(int64_t samples, DType dtype) const {
  const auto t = static_cast<double>(parameters_.mesh().size(Axis::tensor));
  const auto tokens =
      static_cast<double>(samples * options_.context) / parameters_.mesh().size(Axis::context);
  const auto width = static_cast<double>(options_.width);
  const auto heads = static_cast<double>(options_.attention.heads);
  const auto keys = static_cast<double>(
      options_.attention.key_heads == 0 ? options_.attention.heads : options_.attention.key_heads);
  const auto head_size = static_cast<double>(options_.attention.head_size);
  const auto hidden = static_cast<double>(options_.mlp.hidden);
  const double hidden_layers = options_.mlp.kind == MlpKind::swiglu ? 3 : 2;
  const MixtureOptions& mixture = options_.mixture;
  const auto experts = static_cast<double>(mixture.router.experts);
  double all_hidden = hidden;
  if (experts > 0) {
    all_hidden = hidden * static_cast<double>(mixture.router.topk) +
                 static_cast<double>(mixture.shared_hidden);
  }
  const auto bytes = static_cast<double>(size_of(dtype));
  const double sum_bytes = dtype == DType::f64 ? 8 : 4;
  const double statistics = options_.norm == NormKind::layer ? 4 : 2;
  const double rows = options_.compute.sequence_parallel ? tokens / t : tokens;
  // If key heads cannot be divided evenly, a rank keeps the key heads that its queries need
  // (counted for the first rank), or all key heads in deterministic mode.
  const double first_keys = options_.compute.slices > 1 ? keys : std::ceil(keys / t);
  const double kept_keys = std::fmod(keys, t) == 0 ? keys / t : first_keys;
  // Norms of queries and keys keep their inputs.
  const double projections = options_.attention.head_norm == HeadNormKind::none
                                 ? 2 * heads / t + 2 * kept_keys
                                 : 3 * heads / t + 3 * kept_keys;
  const double cut = projections * head_size + hidden_layers * all_hidden / t;
  const double context_share = 5 * heads * static_cast<double>(options_.context) / width;
  const double megatron = options_.compute.sequence_parallel ? (34 + context_share) / t
                                                             : 10 + 24 / t + context_share / t;
  // Also counts the router's logits and scores.
  return {.kept = tokens * (cut * bytes + (heads / t + 2 * experts) * sum_bytes) +
                  rows * (4 * width * bytes + statistics * sum_bytes),
          .megatron = tokens * width * megatron};
}

// Returns the fraction of the tokens that use a parameter: topk / experts for the parameters of an
// expert, 1 for all others.
double Decoder::used_share(const ParameterSpec& spec) const {
  const RouterOptions& router = options_.mixture.router;
  if (router.experts == 0 || spec.name.find(".experts.") == std::string::npos) return 1;
  return static_cast<double>(router.topk) / static_cast<double>(router.experts);
}

// Counts 6 operations per parameter and token, plus the attention's products (Chowdhery et al.:
// PaLM, 2022, appendix B).
double Decoder::flops_per_sample() const {
  double weights = 0;
  for (const ParameterSpec& spec : parameters_.specs()) {
    const bool looked_up = spec.name == options_.names.positions + ".weight" ||
                           (spec.name == options_.names.embedding + ".weight" && !options_.tied);
    if (spec.shape.size() < 2 || looked_up) continue;
    weights += static_cast<double>(spec.count()) * used_share(spec);
  }
  const auto context = static_cast<double>(options_.context);
  const int64_t window = options_.attention.window;
  const double seen = window == 0 ? context : std::min(context, static_cast<double>(window));
  const double attention = 12 *
                           static_cast<double>(options_.layers * options_.attention.heads *
                                               options_.attention.head_size) *
                           seen;
  return context * (6 * weights + attention);
}

}  // namespace tutti::training
