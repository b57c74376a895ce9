// Computes the global norm of gradients, and the factor that clips it.
#pragma once

#include <span>

#include "training/optimizers/norm_reducer.h"
#include "training/optimizers/optimizer.h"

namespace tutti::training {

// Returns the Euclidean norm of the gradients of all owners' pieces, including the loss scale.
// Collective; returns the same bits on every rank and for every layout. Returns NaN if any gradient
// is not finite.
double gradient_norm(std::span<const OwnedPiece> pieces, NormReducer& reducer);

// Returns the factor that limits the norm of gradients to max_norm (Pascanu, Mikolov, Bengio: On
// the difficulty of training recurrent neural networks, 2013), as torch.nn.utils.clip_grad_norm_
// does: min(1, max_norm / (norm + 1e-6)). Returns NaN if the norm is NaN.
double clip_factor(double norm, double max_norm);

}  // namespace tutti::training
