// Aliases of training options: the names that Megatron and transformers use.
#pragma once

#include "training/setup/command_line.h"

namespace tutti::training {

void add_aliases(CommandLine& line);

}  // namespace tutti::training
