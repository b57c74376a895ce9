#include "training/setup/data.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "training/data/image_set.h"
#include "training/setup/model.h"

namespace tutti::training {

LoadedData load_data(RunOptions& options) {
  LoadedData loaded;
  if (!options.validation.empty() &&
      (options.data.size() != 1 || !options.data.front().ends_with(".bin"))) {
    throw Error(ErrorCode::invalid_argument, "--validation goes with one token file",
                {.remedy = "give one --data FILE.bin, or leave --validation out"});
  }
  if (options.model.is_resnet()) {
    for (const std::string& path : options.data) {
      auto images = std::make_unique<ImageSet>(path);
      ResNetConfig& sizes = options.model.images;
      if (!loaded.sets.empty() &&
          (sizes.height != images->height() || sizes.width != images->width())) {
        throw Error(ErrorCode::invalid_argument, "the data sets' images differ in size",
                    {.where = path, .remedy = "give data sets of one size"});
      }
      sizes.classes = std::max(loaded.sets.empty() ? 2 : sizes.classes, images->classes());
      sizes.height = images->height();
      sizes.width = images->width();
      loaded.sets.push_back(std::move(images));
    }
    return loaded;
  }
  int64_t vocabulary = 256;
  const auto add = [&](Tokens tokens) {
    const int64_t context = context_of(options.model);
    if (options.model.is_gpt()) {
      loaded.sets.push_back(
          std::make_unique<TokenWindows>(std::move(tokens), context, options.training.seed));
    } else {
      loaded.sets.push_back(std::make_unique<NextToken>(std::move(tokens), context));
    }
  };
  const auto count = std::ranges::count_if(
      options.data, [](const std::string& path) { return path.ends_with(".bin"); });
  const bool files = count == std::ssize(options.data);
  if (count > 0 && !files) {
    throw Error(ErrorCode::invalid_argument, "texts and token files cannot be mixed",
                {.where = "--data", .remedy = "make token files of the texts: tutti tokenize"});
  }
  if (!files) {
    std::vector<std::vector<std::string>> groups = {options.data};
    if (!options.training.data_weights.empty()) {
      groups.clear();
      for (const std::string& path : options.data) groups.push_back({path});
    }
    for (const std::vector<std::string>& group : groups) {
      TextData text = load_text(group);
      loaded.text_bytes += text.bytes.size();
      if (groups.size() == 1) loaded.bigram_entropy = bigram_entropy(text.bytes);
      add(Tokens(std::move(text)));
    }
  } else {
    for (const std::string& path : options.data) {
      TokenFile file(path);
      std::optional<TokenFile> validation;
      if (!options.validation.empty()) validation.emplace(options.validation);
      Tokens tokens(std::move(file), std::move(validation));
      vocabulary = std::max(vocabulary, tokens.kinds());
      add(std::move(tokens));
    }
  }
  if (!options.model.vocabulary) options.model.vocabulary = vocabulary;
  return loaded;
}

std::vector<const DataSet*> LoadedData::views() const {
  std::vector<const DataSet*> views;
  for (const auto& set : sets) views.push_back(set.get());
  return views;
}

uint64_t LoadedData::examples() const {
  uint64_t sum = 0;
  for (const auto& set : sets) sum += set->size();
  return sum;
}

}  // namespace tutti::training
