// Tests directories that are damaged, malicious, or contain other models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "tests/training/checkpoint/support.h"
#include "training/hugging_face/directory.h"
#include "training/hugging_face/import.h"

namespace tutti::training::hugging_face {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class StrangersTest : public ::testing::Test {
 protected:
  // A copy of a fixture, to be modified.
  std::string copy_of(const std::string& name) {
    const std::string copy = scratch_.path(std::to_string(++copies_));
    fs::copy("tests/training/fixtures/hugging_face/" + name, copy);
    for (const auto& file : fs::directory_iterator(copy)) {
      fs::permissions(file.path(), fs::perms::owner_write, fs::perm_options::add);
    }
    return copy;
  }
  void change_json(const std::string& path, const std::function<void(Json&)>& change) {
    Json json = Json::parse(read_bytes(path));
    change(json);
    fs::remove(path);
    write_bytes(path, json.dump());
  }
  // Modifies the configuration of a fixture. Returns the error of opening it.
  std::string refusal(const std::string& name, const std::function<void(Json&)>& change) {
    const std::string copy = copy_of(name);
    change_json(copy + "/config.json", change);
    return error_of([&] { Directory directory(copy); });
  }
  std::string refusal_of_index(const std::function<void(Json&)>& change) {
    const std::string copy = copy_of("llama_tied");
    change_json(copy + "/model.safetensors.index.json",
                [&](Json& index) { change(index["weight_map"]); });
    return error_of([&] { Directory directory(copy); });
  }

  const Scratch scratch_;
  int copies_ = 0;
};

TEST_F(StrangersTest, IgnoresAnIndexBesideASingleFile) {
  const std::string copy = copy_of("llama");
  write_bytes(copy + "/model.safetensors.index.json",
              R"({"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}})");
  EXPECT_FALSE(Directory(copy).names().empty());
}

// As in transformers, an absent window is 4096, and null is the whole context.
TEST_F(StrangersTest, AbsentAndNullWindows) {
  const auto window = [&](const std::function<void(Json&)>& change) {
    const std::string copy = copy_of("mistral");
    change_json(copy + "/config.json", change);
    return Directory(copy).model().at("window").get<int64_t>();
  };
  EXPECT_EQ(window([](Json&) {}), 7);
  EXPECT_EQ(window([](Json& config) { config.erase("sliding_window"); }), 4096);
  EXPECT_EQ(window([](Json& config) { config["sliding_window"] = Json(); }), 0);
}

TEST_F(StrangersTest, OtherArchitectures) {
  EXPECT_THAT(
      refusal("llama",
              [](Json& config) { config["architectures"] = Json::array({"MambaForCausalLM"}); }),
      AllOf(HasSubstr("MambaForCausalLM"), HasSubstr("LlamaForCausalLM"),
            HasSubstr("config.json")));
  EXPECT_THAT(refusal("llama", [](Json& config) { config["hidden_act"] = "gelu"; }),
              AllOf(HasSubstr("hidden_act"), HasSubstr("silu")));
  EXPECT_THAT(refusal("gpt2", [](Json& config) { config["activation_function"] = "relu"; }),
              HasSubstr("activation_function"));
  EXPECT_THAT(refusal("gpt2", [](Json& config) { config["add_cross_attention"] = true; }),
              HasSubstr("add_cross_attention"));
  EXPECT_THAT(
      refusal("llama3", [](Json& config) { config["rope_parameters"]["rope_type"] = "yarn"; }),
      AllOf(HasSubstr("yarn"), HasSubstr("llama3")));
}

TEST_F(StrangersTest, InvalidConfigurations) {
  EXPECT_THAT(refusal("llama", [](Json& config) { config.erase("hidden_size"); }),
              AllOf(HasSubstr("hidden_size"), HasSubstr("missing")));
  EXPECT_THAT(refusal("llama", [](Json& config) { config["vocab_size"] = "many"; }),
              AllOf(HasSubstr("vocab_size"), HasSubstr("many")));
  EXPECT_THAT(refusal("llama", [](Json& config) { config["num_hidden_layers"] = -1; }),
              HasSubstr("num_hidden_layers"));
  EXPECT_NE(refusal("llama", [](Json& config) { config["num_attention_heads"] = 0; }), "");
  EXPECT_NE(refusal("llama", [](Json& config) { config["num_key_value_heads"] = 3; }), "");
  EXPECT_NE(refusal("llama", [](Json& config) { config["hidden_size"] = 1 << 30; }), "");
  const std::string copy = copy_of("llama");
  write_bytes(copy + "/config.json", "{");
  EXPECT_THAT(error_of([&] { Directory directory(copy); }), HasSubstr("config.json"));
}

TEST_F(StrangersTest, TensorsOfAnotherModel) {
  EXPECT_THAT(refusal("llama", [](Json& config) { config["num_hidden_layers"] = 3; }),
              AllOf(HasSubstr("missing: model.layers.2."), HasSubstr("more")));
  EXPECT_THAT(refusal("llama", [](Json& config) { config["num_hidden_layers"] = 1; }),
              HasSubstr("surplus: model.layers.1."));
  EXPECT_THAT(refusal("llama", [](Json& config) { config["intermediate_size"] = 25; }),
              AllOf(HasSubstr("wrong shape"), HasSubstr("24 x 16, not 25 x 16")));
  // A model with its own output layer is refused if its configuration says that the layer is tied.
  EXPECT_THAT(refusal("llama", [](Json& config) { config["tie_word_embeddings"] = true; }),
              HasSubstr("surplus: lm_head.weight"));
}

TEST_F(StrangersTest, RefusesIndicesThatNameOtherFiles) {
  const std::string tensor = "model.norm.weight";
  for (const char* elsewhere :
       {"../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", ".hidden"}) {
    EXPECT_THAT(refusal_of_index([&](Json& map) { map[tensor] = elsewhere; }),
                HasSubstr("not a file of this directory"))
        << elsewhere;
  }
  EXPECT_THAT(refusal_of_index([&](Json& map) { map[tensor] = 7; }),
              HasSubstr("not a file of this directory"));
  EXPECT_THAT(refusal_of_index([&](Json& map) { map[tensor] = "gone.safetensors"; }),
              AllOf(HasSubstr("gone.safetensors"), HasSubstr("does not exist")));
  EXPECT_THAT(
      refusal_of_index([&](Json& map) { map[tensor] = "model-00001-of-00004.safetensors"; }),
      HasSubstr("model.norm.weight"));
  EXPECT_THAT(
      refusal_of_index([&](Json& map) { map.erase(tensor); }),
      AllOf(HasSubstr("model.norm.weight"), HasSubstr("which the index does not assign to it")));
}

TEST_F(StrangersTest, ShardsThatAreCutOff) {
  const std::string copy = copy_of("llama_tied");
  const std::string shard = copy + "/model-00002-of-00004.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 1);
  EXPECT_THAT(error_of([&] { Directory directory(copy); }),
              HasSubstr("model-00002-of-00004.safetensors"));
  fs::remove(shard);
  EXPECT_THAT(error_of([&] { Directory directory(copy); }), HasSubstr("does not exist"));
}

TEST_F(StrangersTest, ValuesThatAreNotFinite) {
  const std::string copy = copy_of("llama");
  std::string bytes = read_bytes(copy + "/model.safetensors");
  const float broken = NAN;
  std::memcpy(bytes.data() + bytes.size() - sizeof broken, &broken, sizeof broken);
  write_bytes(copy + "/model.safetensors", bytes);
  EXPECT_THAT(error_of([&] { import_model(copy, scratch_.path("run")); }), HasSubstr("NaN"));
  EXPECT_FALSE(fs::exists(scratch_.path("run")));
}

// Defaults of transformers' MixtralConfig and OlmoeConfig.
TEST_F(StrangersTest, AbsentFieldsHaveTheArchitecturesDefaults) {
  const auto without = [&](const std::string& name) {
    const std::string copy = copy_of(name);
    change_json(copy + "/config.json", [](Json& config) {
      for (const char* field : {"rope_theta", "rope_parameters", "rope_scaling", "rms_norm_eps"}) {
        config.erase(field);
      }
    });
    return Directory(copy).model();
  };
  EXPECT_EQ(without("mixtral").at("rope_base"), 1e6);
  EXPECT_EQ(without("mixtral").at("norm_epsilon"), 1e-5);
  EXPECT_EQ(without("olmoe").at("norm_epsilon"), 1e-5);
  EXPECT_EQ(without("olmoe").at("rope_base"), 1e4);
  EXPECT_EQ(without("llama").at("norm_epsilon"), 1e-6);
}

// The format of transformers 4.
TEST_F(StrangersTest, EarlierRotaryPositions) {
  const auto model_of = [&](const Json& scaling) {
    const std::string copy = copy_of("llama");
    change_json(copy + "/config.json", [&](Json& config) {
      config.erase("rope_parameters");
      config["rope_theta"] = 500000.0;
      config["rope_scaling"] = scaling;
    });
    return Directory(copy).model();
  };
  EXPECT_EQ(model_of(Json()).at("rope_base"), 500000);
  EXPECT_EQ(model_of(Json()).at("rope_scaling"), "none");
  const Json linear = model_of({{"type", "linear"}, {"factor", 2.5}});
  EXPECT_EQ(linear.at("rope_scaling"), "linear");
  EXPECT_EQ(linear.at("rope_factor"), 2.5);
  const Json dynamic = model_of({{"rope_type", "dynamic"}, {"factor", 2.0}});
  EXPECT_EQ(dynamic.at("rope_scaling"), "dynamic");
  EXPECT_EQ(dynamic.at("rope_original_context"), 32);
}

// Where a file contradicts itself, the model is the one that transformers 5.24 makes of it.
TEST_F(StrangersTest, ContradictionsAreReadAsTransformersReadsThem) {
  const auto model_of = [&](const char* name, const std::function<void(Json&)>& change) {
    const std::string copy = copy_of(name);
    change_json(copy + "/config.json", change);
    return Directory(copy).model();
  };
  const Json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 4.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 32}};
  const Json both = model_of("llama", [&](Json& config) {
    config["rope_scaling"] = linear;
    config["rope_parameters"] = llama3;
  });
  EXPECT_EQ(both.at("rope_scaling"), "linear");
  EXPECT_EQ(both.at("rope_factor"), 2);
  for (const Json& nothing : {Json(), Json::object()}) {
    const Json parameters = model_of("llama", [&](Json& config) {
      config["rope_scaling"] = nothing;
      config["rope_parameters"] = llama3;
      config["original_max_position_embeddings"] = 16;
    });
    EXPECT_EQ(parameters.at("rope_scaling"), "llama3");
    EXPECT_EQ(parameters.at("rope_original_context"), 16);
  }
  const Json gpt2 = model_of("gpt2", [](Json& config) {
    config["num_attention_heads"] = 1;
    config["hidden_size"] = config["n_embd"];
    config.erase("n_embd");
  });
  EXPECT_EQ(gpt2.at("heads"), 1);
  EXPECT_THAT(refusal("gpt2", [](Json& config) { config["hidden_size"] = 1024; }),
              HasSubstr("wrong shape"));
}

TEST_F(StrangersTest, RefusalsOfRotaryPartsAreTrue) {
  for (const char* place : {"", "rope_parameters", "rope_scaling"}) {
    const std::string said = refusal("llama", [&](Json& config) {
      if (*place == 0) {
        config["partial_rotary_factor"] = 0.5;
      } else {
        config[place] = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
      }
    });
    EXPECT_THAT(said, HasSubstr("\"partial_rotary_factor\" is 0.5")) << place;
  }
}

}  // namespace
}  // namespace tutti::training::hugging_face
