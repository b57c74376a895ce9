// Finds and formats individual settings of a run's configuration.
#pragma once

#include <string>

#include "base/json.h"

namespace tutti::training {

// Returns the settings that determine the losses, in a flat object by short names ("lr").
Json settings_in(const Json& whole);

// Returns a value as text; numbers as the shortest text that reads back as the same number.
std::string text_of_setting(const Json& value);

// Returns "lr" for "optimizer.lr"; returns an unknown name unchanged.
std::string short_name_of(const std::string& key);

}  // namespace tutti::training
