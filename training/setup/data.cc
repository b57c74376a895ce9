#include "training/setup/data.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/data/image_set.h"
#include "training/data/shape_set.h"
#include "training/language/model_source.h"

namespace tutti::training {

namespace {

// Sets the model's image size and its minimum number of classes to those of the data.
template <typename Images>
void match_images(Json& model, const Images& images, const std::string& path) {
  const auto match = [&](const char* name, int64_t size) {
    if (!model.contains(name)) model[name] = size;
    if (model[name] == size) return;
    throw Error(
        ErrorCode::invalid_argument,
        cat("the images' ", name, " is ", size, ", not ", model[name], " as in the first data set"),
        {.where = path, .remedy = "use data sets with images of the same size"});
  };
  match("channels", 1);
  match("height", images.height());
  match("width", images.width());
  model["classes"] = std::max(model.value("classes", int64_t{2}), images.classes());
}

// Throws for texts, which are read as bytes, if the model has a tokenizer.
void refuse_texts_of_tokens(const RunOptions& options) {
  const TrainOptions& training = options.training;
  const std::string resumed = options.resume.empty() ? "" : training.checkpoint;
  for (const std::string& path : {resumed, training.initial}) {
    if (path.empty()) continue;
    std::string tokenizer;
    try {
      tokenizer = tokenizer_of(open_model(path));
    } catch (const Error&) {
      continue;  // there may be no run yet; resuming reports a fault of the run
    }
    if (tokenizer.empty()) return;
    throw Error(ErrorCode::invalid_argument,
                cat("the model in ", path, " has a tokenizer, but text files are read as bytes"),
                {.where = "--data",
                 .remedy = cat("convert the text: tutti tokenize --tokenizer ", tokenizer,
                               " --data ", options.data.front(), " --out FILE.bin")});
  }
}

}  // namespace

LoadedData load_data(RunOptions& options) {
  LoadedData loaded;
  const bool all_are_tokens = std::ranges::all_of(
      options.data, [](const std::string& path) { return path.ends_with(".bin"); });
  if (!options.validation.empty() && !all_are_tokens) {
    throw Error(ErrorCode::invalid_argument, "--validation requires token files",
                {.remedy = "use --data FILE.bin, or remove --validation"});
  }
  const Inputs inputs = kind_of(options.model).traits.inputs;
  if (are_images(inputs)) {
    const bool pixels = inputs == Inputs::images_of_pixels;
    const auto add = [&](const std::string& path, auto images) {
      match_images(options.model, *images, path);
      loaded.sets.push_back(std::move(images));
    };
    for (const std::string& path : options.data) {
      if (ShapeSet::is_named(path)) {
        add(path, std::make_unique<ShapeSet>(ShapeSet::parse(path), pixels));
      } else {
        add(path, std::make_unique<ImageSet>(path, pixels));
      }
    }
    return loaded;
  }
  if (options.training.document_mask && inputs != Inputs::windows) {
    throw Error(ErrorCode::invalid_argument,
                "the model predicts a single token, so it has no document boundaries",
                {.where = "--document-mask", .remedy = "remove the option"});
  }
  int64_t vocabulary = 256;
  const auto context = completed_model(options.model).at("context").get<int64_t>();
  const auto add = [&](Tokens tokens) {
    if (inputs == Inputs::windows) {
      loaded.sets.push_back(std::make_unique<TokenWindows>(
          std::move(tokens), context, options.training.seed, options.training.document_mask));
    } else {
      loaded.sets.push_back(std::make_unique<NextToken>(std::move(tokens), context));
    }
  };
  const auto count = std::ranges::count_if(
      options.data, [](const std::string& path) { return path.ends_with(".bin"); });
  const bool files = count == std::ssize(options.data);
  if (count > 0 && !files) {
    throw Error(ErrorCode::invalid_argument, "text files and token files cannot be mixed",
                {.where = "--data", .remedy = "convert the text files with `tutti tokenize`"});
  }
  if (!files) {
    refuse_texts_of_tokens(options);
    std::vector<std::vector<std::string>> groups = {options.data};
    if (!options.training.data_weights.empty()) {
      groups.clear();
      for (const std::string& path : options.data) groups.push_back({path});
    }
    for (const std::vector<std::string>& group : groups) {
      TextData text = load_text(group);
      loaded.text_bytes += text.bytes.size();
      loaded.skipped.insert(loaded.skipped.end(), text.skipped.begin(), text.skipped.end());
      if (groups.size() == 1) loaded.bigram_entropy = bigram_entropy(text.bytes);
      add(Tokens(std::move(text)));
    }
  } else {
    for (const std::string& path : options.data) {
      TokenFile file(path);
      // The shards of one data set share one validation file.
      const bool is_given = !options.validation.empty();
      std::optional<TokenFile> validation;
      if (is_given && loaded.sets.empty()) validation.emplace(options.validation);
      Tokens tokens(std::move(file), std::move(validation), !is_given);
      vocabulary = std::max(vocabulary, tokens.kinds());
      add(std::move(tokens));
    }
  }
  if (!options.model.contains("vocabulary")) options.model["vocabulary"] = vocabulary;
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
