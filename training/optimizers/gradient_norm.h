// Clipping by the norm of all gradients together, however they are spread over ranks.
#pragma once

#include <span>

#include "training/optimizers/norm_reducer.h"
#include "training/optimizers/optimizer.h"

namespace tutti::training {

// The Euclidean norm of the gradients of all owners' pieces, as they lie in memory: scaled ones
// have a scaled norm. A collective call; the same bits on every rank and for every layout. NaN if
// any gradient is not finite.
double gradient_norm(std::span<const OwnedPiece> pieces, NormReducer& reducer);

// What to multiply gradients by so that their norm is max_norm at most (Pascanu, Mikolov, Bengio:
// On the difficulty of training recurrent neural networks, 2013), as
// torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)). NaN for a norm that is NaN.
double clip_factor(double norm, double max_norm);

}  // namespace tutti::training
