// A run's settings one by one, out of its whole configuration.
#pragma once

#include <string>

#include "base/json.h"

namespace tutti::training {

// By people's names ("lr"), in an object without others in it: those that losses follow from.
Json settings_in(const Json& whole);
// The same of an earlier checkpoint's configuration, which is of texts: {"lr": "0.001"}.
Json settings_in_earlier(const Json& texts);
bool is_earlier(const Json& configuration);

// A value for people, numbers by the shortest text that is read back as the same.
std::string text_of_setting(const Json& value);

// "lr" for "optimizer.lr"; a name that is none stays as it is.
std::string short_name_of(const std::string& key);

}  // namespace tutti::training
