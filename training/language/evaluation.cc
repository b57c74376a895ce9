#include "training/language/evaluation.h"

#include <algorithm>
#include <vector>

#include "training/data/token_file.h"
#include "training/pipeline/runner.h"

namespace tutti::training {
namespace {

constexpr int64_t kMostLogits = 1 << 24;  // limit on the logits of windows that run together

// Windows of the same length, one after the other.
struct Windows {
  std::vector<int32_t> tokens, targets;
  int64_t count = 0;

  // Adds a window: its tokens, and as targets the tokens that follow them.
  void add(std::span<const int32_t> window) {
    for (size_t i = 0; i + 1 < window.size(); ++i) {
      tokens.push_back(id_of(window[i]));
      targets.push_back(window[i + 1]);  // marked tokens are negative, and so ignored as targets
    }
    ++count;
  }
};

void add_loss(ModelRunner& runner, Windows& windows, TextLoss& loss) {
  if (windows.count == 0) return;
  UnitHooks hooks;
  const PassResult result = runner.evaluate(
      {.samples = windows.count, .tokens = windows.tokens, .targets = windows.targets}, hooks);
  loss.sum += result.loss_sum;
  loss.correct += result.correct;
  loss.targets += std::ranges::count_if(windows.targets, is_predicted);
  windows = {};
}

}  // namespace

TextLoss evaluate_text(Decoder& model, DType dtype, const TokenReader& tokens, int rank,
                       int ranks) {
  const int64_t context = model.context();
  const int64_t together = std::clamp<int64_t>(kMostLogits / (context * model.vocabulary()), 1, 16);
  ModelRunner runner(model, {.dtype = dtype});
  TextLoss loss;
  Windows windows;
  std::vector<int32_t> window;
  const auto step = static_cast<uint64_t>(context);
  for (uint64_t first = static_cast<uint64_t>(rank) * step; first + 1 < tokens.size;
       first += static_cast<uint64_t>(ranks) * step) {
    window.resize(std::min(step + 1, tokens.size - first));
    tokens.read(first, window);
    const bool is_short = window.size() < step + 1;
    if (is_short || windows.count == together) add_loss(runner, windows, loss);
    windows.add(window);
  }
  add_loss(runner, windows, loss);
  return loss;
}

}  // namespace tutti::training
