// Reads a configuration (JSON) into a struct, and writes a struct as a configuration. The function
// `describe` adds each member of the configuration to a Schema, with a reference to the variable of
// the struct that holds its value.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/json.h"
#include "training/core/schema.h"

namespace tutti {

template <typename Config>
struct Described {
  using Describe = void (*)(Schema& schema, Config& config);

  std::string prefix;  // name of the configuration for messages, such as "model"
  std::string tag;     // the member that names the kind, such as "kind"
  std::string name;    // the value of the member `tag`, such as "gpt2"
  Describe describe;
  Config defaults = {};
  // if set, derives values from other members after reading
  Config (*complete)(Config config) = nullptr;

  static constexpr double kLargestSize = 1 << 24;

  // Returns the default values, overridden by `configuration`. Throws as Schema::read() does.
  Config read(const Json& configuration) const {
    Config config = defaults;
    Schema schema(kLargestSize);
    describe(schema, config);
    Json own = configuration;
    own.erase(tag);
    schema.read(own, "", prefix);
    return complete == nullptr ? config : complete(std::move(config));
  }
  // Returns all members as JSON, including the tag.
  Json write(Config config) const {
    Schema schema;
    describe(schema, config);
    Json all = {{tag, name}};
    for (const Field& field : schema.fields()) all[field.key()] = field.get();
    return all;
  }
  // Returns the schema, with the defaults as values.
  std::shared_ptr<const Schema> schema() const {
    struct Both {
      Config config;
      Schema schema{kLargestSize};
    };
    const auto both = std::make_shared<Both>(Both{defaults});
    describe(both->schema, both->config);
    return {both, &both->schema};
  }
};

}  // namespace tutti
