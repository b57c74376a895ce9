#include "training/pipeline/profile_json.h"

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace tutti::training::pipeline {
namespace {

constexpr const char* kFormat = "tutti-profile";
constexpr int kVersion = 1;

Layer layer_of(const Json& object) {
  return {object.at("name").get<std::string>(), object.at("forward_s").get<double>(),
          object.at("backward_s").get<double>(), object.at("activation_bytes").get<int64_t>(),
          object.at("parameter_bytes").get<int64_t>()};
}

[[noreturn]] void refuse(const std::string& file, const std::string& cause) {
  throw Error(ErrorCode::invalid_argument, cat(file, " is not a profile"),
              {.cause = cause, .remedy = "use a file written by `tutti partition --save-profile`"});
}

}  // namespace

std::string to_json(const Profile& profile) {
  Json layers = Json::array();
  for (const Layer& layer : profile.layers) {
    layers.push_back({{"name", layer.name},
                      {"forward_s", layer.forward},
                      {"backward_s", layer.backward},
                      {"activation_bytes", layer.activation_bytes},
                      {"parameter_bytes", layer.parameter_bytes}});
  }
  const Json document = {{"format", kFormat},
                         {"version", kVersion},
                         {"model", profile.model},
                         {"samples", profile.samples},
                         {"layers", layers}};
  return document.dump(2) + '\n';
}

Profile profile_from_json(std::string_view text, const std::string& file) {
  try {
    const Json document = Json::parse(text);
    if (document.at("format") != kFormat || document.at("version") != kVersion) {
      refuse(file, cat("\"format\" must be \"", kFormat, "\", \"version\" ", kVersion));
    }
    Profile profile{
        document.at("model").get<std::string>(), document.at("samples").get<int64_t>(), {}};
    if (profile.samples < 1) refuse(file, "\"samples\" must be at least 1");
    for (const Json& layer : document.at("layers")) profile.layers.push_back(layer_of(layer));
    return profile;
  } catch (const Error& error) {
    refuse(file, error.what());
  }
}

}  // namespace tutti::training::pipeline
