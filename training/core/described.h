// A struct that is read from a configuration: one function maps each member of the configuration to
// a value of the struct.
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

  std::string prefix;  // "model", for messages
  std::string tag;     // the member that names the kind: "kind"
  std::string name;    // the value of that member: "gpt2"
  Describe describe;
  Config defaults = {};
  Config (*complete)(Config config) = nullptr;  // derives values from other members

  static constexpr double kLargestSize = 1 << 24;

  // Returns the defaults, overridden by `configuration`. Throws as Schema::read() does.
  Config read(const Json& configuration) const {
    Config config = defaults;
    Schema schema(kLargestSize);
    describe(schema, config);
    Json own = configuration;
    own.erase(tag);
    schema.read(own, "", prefix);
    return complete == nullptr ? config : complete(std::move(config));
  }
  // Returns all members, the tag included.
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
