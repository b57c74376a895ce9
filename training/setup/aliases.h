// Aliases of training options: their names in Megatron and transformers.
#pragma once

#include "training/setup/command_line.h"

namespace tutti::training {

void add_aliases(CommandLine& line);

}  // namespace tutti::training
