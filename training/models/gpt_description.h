// Models from what Model::description() says, as checkpoints keep it.
#pragma once

#include <memory>
#include <string>

#include "training/models/gpt.h"

namespace tutti::training {

// Throws Error(invalid_argument) where the text is not that of a Gpt.
GptConfig gpt_config_from(const std::string& description);

}  // namespace tutti::training
