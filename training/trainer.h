// Includes the headers of the training layer that programs need: a Trainer, its options, and the
// types that they name.
#pragma once

#include "training/run/trainer.h"
