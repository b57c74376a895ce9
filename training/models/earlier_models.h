// Models as earlier checkpoints describe them: in a line of text, "gpt layers=4 tied=1".
#pragma once

#include <string>

#include "base/json.h"

namespace tutti::training {

// The model's configuration; the text as it is where it describes none.
Json model_of_earlier(const std::string& text);

}  // namespace tutti::training
