// A run's settings one by one, out of its whole configuration.
#pragma once

#include <string>

#include "base/json.h"

namespace tutti::training {

// By people's names ("lr"), in an object without others in it: those that losses follow from.
Json settings_in(const Json& whole);

// A value for people, numbers by the shortest text that is read back as the same.
std::string text_of_setting(const Json& value);

// "lr" for "optimizer.lr"; a name that is none stays as it is.
std::string short_name_of(const std::string& key);

}  // namespace tutti::training
