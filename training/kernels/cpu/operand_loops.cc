#include "training/kernels/cpu/operand_loops.h"

#include "base/reduce.h"

namespace tutti::training::kernels {
namespace {

const OperandLoops& selected_operand_loops() {
  switch (selected_instruction_set()) {
#if defined(__x86_64__)
    case InstructionSet::avx2:
      return avx2::kOperandLoops;
    case InstructionSet::avx512:
      return avx512::kOperandLoops;
#endif
    default:
      return baseline::kOperandLoops;
  }
}

}  // namespace

const OperandLoops& operand_loops() {
  static const OperandLoops& selected = selected_operand_loops();
  return selected;
}

}  // namespace tutti::training::kernels
