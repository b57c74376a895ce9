#include "training/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/data/tokenizer.h"
#include "training/kernels/elementwise.h"
#include "training/random.h"

namespace tutti::training {
namespace {

void check(const GenerationOptions& options, std::span<const int32_t> prompt) {
  if (options.tokens >= 0 && options.temperature >= 0 && options.top_k >= 0 && !prompt.empty()) {
    return;
  }
  throw Error(ErrorCode::invalid_argument,
              cat("cannot make ", options.tokens, " tokens at temperature ", options.temperature,
                  " from the ", options.top_k, " likeliest after ", prompt.size()),
              {.remedy = "give numbers of 0 or more and a prompt"});
}

int32_t choose(std::span<const float> logits, const GenerationOptions& options, uint64_t index) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  };
  const size_t kept = options.temperature == 0 ? 1
                      : options.top_k == 0
                          ? order.size()
                          : std::min(order.size(), static_cast<size_t>(options.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(kept), order.end(),
                    likelier);
  if (kept == 1) return order.front();
  std::vector<double> cumulative;
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double above = logits[static_cast<size_t>(order[i])] -
                         static_cast<double>(logits[static_cast<size_t>(order.front())]);
    cumulative.push_back(sum += std::exp(above / options.temperature));
  }
  const double drawn =
      static_cast<double>(random_bits(options.seed, 0, index) >> 11) * 0x1p-53 * sum;
  const auto found = std::ranges::upper_bound(cumulative, drawn);
  return order[std::min(static_cast<size_t>(found - cumulative.begin()), kept - 1)];
}

}  // namespace

void generate(Gpt& model, DType dtype, std::span<const int32_t> prompt,
              const GenerationOptions& options, const std::function<void(int32_t)>& on_token) {
  check(options, prompt);
  const auto context = static_cast<size_t>(model.config().context);
  ModelRunner runner(model, {.dtype = dtype});
  UnitHooks hooks;
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  std::vector<float> logits(static_cast<size_t>(model.config().vocabulary));
  for (int64_t made = 0; made < options.tokens; ++made) {
    // What follows the last token is filled up: causal attention does not see it.
    const size_t seen = std::min(context, tokens.size());
    std::vector<int32_t> window(tokens.end() - static_cast<ptrdiff_t>(seen), tokens.end());
    window.resize(context);
    const Tensor all = runner.predict({.samples = 1, .tokens = window}, hooks);
    convert(all.row_range(static_cast<int64_t>(seen) - 1, 1),
            tensor_at(logits.data(), DType::f32, 1, std::ssize(logits)));
    tokens.push_back(choose(logits, options, static_cast<uint64_t>(made)));
    on_token(tokens.back());
  }
}

void generate_text(Gpt& model, DType dtype, const std::string& tokenizer, const std::string& prompt,
                   const GenerationOptions& options,
                   const std::function<void(const std::string&)>& on_text) {
  const auto words = make_tokenizer(tokenizer);
  const int64_t vocabulary = model.config().vocabulary;
  if (std::cmp_less(vocabulary, words->vocabulary_size())) {
    throw Error(ErrorCode::invalid_argument,
                cat("the model has ", vocabulary, " kinds of tokens, the tokenizer ",
                    words->vocabulary_size()),
                {.where = "--tokenizer", .remedy = "give the tokenizer of its training data"});
  }
  if (vocabulary > 256 && tokenizer.empty()) {
    throw Error(ErrorCode::invalid_argument,
                cat("the model has ", vocabulary, " kinds of tokens: they are not bytes"),
                {.remedy = "give the tokenizer of its training data: --tokenizer DIR"});
  }
  const std::vector<int32_t> tokens = words->encode(prompt);
  on_text(prompt);
  generate(model, dtype, tokens, options, [&](int32_t token) {
    // A model may have more outputs than there are tokens; it hardly ever takes these.
    if (std::cmp_less(token, words->vocabulary_size())) on_text(words->text_of(token));
  });
}

}  // namespace tutti::training
