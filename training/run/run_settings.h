// Individual settings of a run's configuration.
#pragma once

#include <string>

#include "base/json.h"

namespace tutti::training {

// The settings that determine the losses, in a flat object by short names ("lr").
Json settings_in(const Json& whole);

// A value as text; numbers as the shortest text that reads back as the same number.
std::string text_of_setting(const Json& value);

// "lr" for "optimizer.lr"; an unknown name is returned unchanged.
std::string short_name_of(const std::string& key);

}  // namespace tutti::training
