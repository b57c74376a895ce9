#include "training/planner/layout.h"

#include "base/text.h"

namespace tutti::training::planner {

std::string name(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
  }
  return "";
}

std::string to_text(const Layout& layout) {
  std::string text = cat("dp ", layout.data);
  const auto add = [&](const char* axis, int ranks) {
    if (ranks > 1) text += cat(", ", axis, ' ', ranks);
  };
  add("tp", layout.tensor);
  add("pp", layout.stages);
  add("vp", layout.virtual_stages);
  add("cp", layout.context);
  add("ep", layout.expert);
  text += cat(", zero ", layout.zero, layout.sequence_parallel ? ", sp" : "", ", micro-batch ",
              layout.micro_batch);
  if (layout.recompute != Recompute::none) text += cat(", recompute ", name(layout.recompute));
  for (size_t chunk = 0; chunk < layout.cut.size(); ++chunk) {
    text += cat(chunk == 0 ? ", cut at units " : ",", layout.cut[chunk]);
  }
  return text;
}

std::vector<std::string> train_options(const Layout& layout) {
  std::vector<std::string> options;
  const auto add = [&](const char* option, int value) {
    if (value > 1) options.push_back(cat(option, '=', value));
  };
  add("--dp", layout.data);
  add("--tp", layout.tensor);
  if (layout.sequence_parallel) options.emplace_back("--sp");
  add("--cp", layout.context);
  add("--ep", layout.expert);
  add("--pp", layout.stages);
  if (layout.virtual_stages > 1) options.emplace_back("--schedule=interleaved");
  if (layout.stages > 1 && (layout.virtual_stages > 1 || !layout.cut.empty())) {
    options.push_back(cat("--virtual=", layout.virtual_stages));
  }
  std::string cut;
  for (const int unit : layout.cut) cut += cat(cut.empty() ? "--cut=" : ",", unit);
  if (!cut.empty()) options.push_back(cut);
  options.push_back(cat("--zero=", layout.zero));
  options.push_back(cat("--micro-batch=", layout.micro_batch));
  if (layout.recompute != Recompute::none) {
    options.push_back(cat("--recompute=", name(layout.recompute)));
  }
  return options;
}

}  // namespace tutti::training::planner
