// The training layer, for programs: a Trainer, its options, and the parts that they name.
#pragma once

#include "training/run/trainer.h"
