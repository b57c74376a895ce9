// Help texts of the options for a run's settings.
#pragma once

#include <string>
#include <vector>

#include "training/core/schema.h"
#include "training/setup/kind_settings.h"

namespace tutti::training {

// Returns the words as one text. `last`: separator of the last two words.
std::string joined(const std::vector<std::string>& words, const char* separator, const char* last);
std::string joined(const std::vector<std::string>& words, const char* separator);

// Returns the description of a setting, with its default.
std::string meaning_of(const Field& field);
// Returns the description of a setting of models or optimizers, with the kinds that have it and
// their defaults: "mlp: hidden layers; transformers: blocks (default: 1 for mlp; 4 for
// transformers)".
std::string meaning_of(const KindSettings& settings, const std::string& key);
// Returns the groups of models that the descriptions name: "transformers (gpt2, Llama family),
// Llama family (llama, MoE models), ...".
std::string model_groups_in_words();

}  // namespace tutti::training
