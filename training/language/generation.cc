#include "training/language/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/core/random.h"
#include "training/data/tokenizer.h"
#include "training/kernels/elementwise.h"
#include "training/modules/key_value_cache.h"

namespace tutti::training {
namespace {

void check(const GenerationOptions& options, std::span<const int32_t> prompt) {
  if (options.tokens >= 0 && options.temperature >= 0 && options.top_k >= 0 && options.top_p > 0 &&
      options.top_p <= 1 && !prompt.empty()) {
    return;
  }
  throw Error(ErrorCode::invalid_argument,
              cat("cannot generate ", options.tokens, " tokens at temperature ",
                  options.temperature, ", top-k ", options.top_k, " and top-p ", options.top_p,
                  " from a prompt of ", prompt.size()),
              {.remedy = "use numbers of at least 0, a top-p above 0 and at most 1, and a prompt"});
}

int32_t choose(std::span<const float> logits, const GenerationOptions& options, uint64_t index) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  };
  size_t kept = options.temperature == 0 ? 1
                : options.top_k == 0     ? order.size()
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
  if (options.top_p < 1) {  // keep tokens up to the first with which the sum reaches top_p
    const auto last = std::ranges::lower_bound(cumulative, options.top_p * sum);
    kept = std::min(static_cast<size_t>(last - cumulative.begin()) + 1, kept);
    cumulative.resize(kept);
    sum = cumulative.back();
  }
  const double drawn =
      static_cast<double>(random_bits(options.seed, 0, index) >> 11) * 0x1p-53 * sum;
  const auto found = std::ranges::upper_bound(cumulative, drawn);
  return order[std::min(static_cast<size_t>(found - cumulative.begin()), kept - 1)];
}

// Computes the logits of the token after a sequence that grows token by token.
class Reader {
 public:
  Reader(Decoder& model, DType dtype, bool cached)
      : head_(static_cast<int>(model.units().size()) - 1),
        cached_(cached),
        cache_(model.context()),
        runner_(model, {.dtype = dtype, .cache = cached ? &cache_ : nullptr}) {}

  // Computes the logits of the token that follows `window`, the tokens in the model's context. The
  // last `fresh` tokens of the window are new since the last call.
  void read(std::span<const int32_t> window, size_t fresh, std::vector<float>& logits) {
    if (!cached_) fresh = window.size();
    const Share range{std::ssize(window) - static_cast<int64_t>(fresh),
                      static_cast<int64_t>(fresh)};
    const MicroBatch batch{.samples = 1,
                           .tokens = window.last(fresh),
                           .ranges = {&range, 1},
                           .positions = std::ssize(window)};
    const Tensor rows = runner_.forward_only({{0, head_}, 0}, batch, {}, hooks_);
    // The output layer is expensive, so it gets only the last row.
    const Tensor last = runner_.forward_only({{head_, head_ + 1}, 1}, batch,
                                             rows.row_range(rows.rows - 1, 1), hooks_);
    logits.resize(static_cast<size_t>(last.cols));
    convert(last, tensor_at(logits.data(), DType::f32, 1, last.cols));
  }

 private:
  int head_;
  bool cached_;
  KeyValueCache cache_;
  ModelRunner runner_;
  UnitHooks hooks_;
};

}  // namespace

void generate(Decoder& model, DType dtype, std::span<const int32_t> prompt,
              const GenerationOptions& options, const std::function<void(int32_t)>& on_token) {
  check(options, prompt);
  const auto context = static_cast<size_t>(model.context());
  Reader reader(model, dtype, options.cached);
  std::vector<float> logits;
  std::vector<int32_t> window(
      prompt.begin() + static_cast<ptrdiff_t>(prompt.size() - std::min(prompt.size(), context)),
      prompt.end());
  size_t fresh = window.size();
  for (int64_t made = 0; made < options.tokens; ++made) {
    if (window.size() > context) {
      window.erase(window.begin(), window.end() - static_cast<ptrdiff_t>((context + 1) / 2));
      fresh = window.size();
    }
    reader.read(window, fresh, logits);
    window.push_back(choose(logits, options, static_cast<uint64_t>(made)));
    fresh = 1;
    if (std::ranges::count(options.ends, window.back()) > 0) return;
    on_token(window.back());
  }
}

void generate_text(Decoder& model, DType dtype, const std::string& tokenizer,
                   const std::string& prompt, const GenerationOptions& options,
                   const std::function<void(const std::string&)>& on_text) {
  const auto words = make_tokenizer(tokenizer);
  const int64_t vocabulary = model.vocabulary();
  if (std::cmp_less(vocabulary, words->vocabulary_size())) {
    throw Error(ErrorCode::invalid_argument,
                cat("the model has a vocabulary of ", vocabulary, ", the tokenizer one of ",
                    words->vocabulary_size()),
                {.where = "--tokenizer", .remedy = "use the tokenizer of its training data"});
  }
  if (vocabulary > 256 && tokenizer.empty()) {
    throw Error(ErrorCode::invalid_argument,
                cat("the model has a vocabulary of ", vocabulary, ", so its tokens are not bytes"),
                {.remedy = "use the tokenizer of its training data: --tokenizer DIR"});
  }
  const Tokenizer::Frame frame = words->frame();
  std::vector<int32_t> tokens = frame.before;
  for (const int32_t token : words->encode(prompt)) tokens.push_back(token);
  tokens.insert(tokens.end(), frame.after.begin(), frame.after.end());
  on_text(prompt);
  GenerationOptions completed = options;
  if (options.ignore_end) {
    completed.ends.clear();
  } else if (const auto end = words->end_of_text(); end && options.ends.empty()) {
    completed.ends = {*end};
  }
  generate(model, dtype, tokens, completed, [&](int32_t token) {
    // A model may have more outputs than there are tokens. It rarely chooses one of the surplus
    // outputs, which has no text.
    if (std::cmp_less(token, words->vocabulary_size())) on_text(words->text_of(token));
  });
}

}  // namespace tutti::training
