#include "training/setup/mix_setting.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/file_text.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/models/registry.h"

namespace tutti::training {
namespace {

constexpr const char* kOption = "--mix";

}  // namespace

bool takes_mix(const RunOptions& options) {
  const std::string name = options.model.value("kind", std::string());
  return std::ranges::any_of(model_kinds(), [&](const ModelKind& kind) {
    return kind.name == name && kind.traits.mixes_layers;
  });
}

Mix mix_of(const RunOptions& options) {
  if (options.mix.empty() || options.mesh.tensor == 1 || !takes_mix(options)) return {};
  if (options.mix == kSearchedMix) {
    throw Error(
        ErrorCode::unsupported, "--mix auto must be chosen before ranks are started",
        {.cause = "ranks that measure costs separately could choose different mixes",
         .remedy = "start the ranks with `tutti train --ranks`, or give one letter per layer"});
  }
  if (is_mix(options.mix)) return parse_mix(options.mix, kOption);
  const std::string text =
      file_text(options.mix, FileKind::mix,
                {.where = cat(kOption, ' ', printable(options.mix)),
                 .remedy = "give one letter per layer (b,m,m,b), or a file with these letters"});
  return parse_mix(text, options.mix);
}

void settle_mix(RunOptions& options) {
  if (options.mesh.tensor == 1 || !takes_mix(options)) return options.mix.clear();
  if (options.mesh.pipeline > 1) {
    throw Error(ErrorCode::unsupported,
                cat("a ", kind_of(options.model).name, " does not support --tp together with --pp"),
                {.where = "--pp",
                 .cause = "its layers pass on tensors sharded in many ways, but pipeline stages "
                          "only accept rows or whole tensors",
                 .remedy = "remove one of them"});
  }
  Mix mix = mix_of(options);
  if (mix.empty()) {
    const auto layers = make_model(options.model)->units().size();
    mix.assign(layers, LayerSplit::model);
  }
  options.mix = to_text(mix);
}

}  // namespace tutti::training
