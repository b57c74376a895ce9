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
  return text;
}

}  // namespace tutti::training::planner
