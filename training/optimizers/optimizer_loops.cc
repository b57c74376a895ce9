#include "training/optimizers/optimizer_loops.h"

namespace tutti::training::optimizer_loops {

const Loops& loops(InstructionSet set) {
  switch (set) {
#if defined(__x86_64__)
    case InstructionSet::avx2:
      return avx2::kLoops;
    case InstructionSet::avx512:
      return avx512::kLoops;
#endif
    default:
      return baseline::kLoops;
  }
}

const Loops& loops() {
  static const Loops& selected = loops(selected_instruction_set());
  return selected;
}

}  // namespace tutti::training::optimizer_loops
