// Checks and fields that the configurations of several models share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "training/core/schema.h"

namespace tutti::training {

// Throws Error(invalid_argument), naming the size `what`, if `size` is below `least`.
void require_size(std::string_view what, int64_t size, int64_t least = 1);

// Adds the fields of image models whose default values follow from the data. `classes`: description
// of the field `classes`.
template <typename Config>
void describe_images(Schema& schema, Config& config, const std::string& classes) {
  schema.add("channels", config.channels, "number of image channels").flag("");
  schema.add("height", config.height, "image height in pixels").flag("");
  schema.add("width", config.width, "image width in pixels").flag("");
  schema.add("classes", config.classes, classes).flag("");
}
template <typename Config>
void require_images(const Config& config) {
  require_size("number of channels", config.channels);
  require_size("images' height", config.height);
  require_size("images' width", config.width);
  require_size("number of classes", config.classes);
}

}  // namespace tutti::training
