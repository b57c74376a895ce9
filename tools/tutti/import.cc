// tutti import: makes a run's directory of a model in one of Hugging Face's.
#include "training/hugging_face/import.h"

#include <cstdio>
#include <memory>
#include <string>

#include "base/printable.h"
#include "tools/tutti/commands.h"
#include "training/core/model.h"
#include "training/language/model_source.h"

namespace tutti::tool {
namespace {

struct ImportOptions {
  std::string from;
  std::string run;
  training::hugging_face::ImportOptions how;
};

int import_model(const ImportOptions& options) {
  training::hugging_face::import_model(options.from, options.run, options.how);
  const training::ModelSource model = training::open_model(options.run);
  std::printf("%s has %s\n", options.run.c_str(),
              printable(training::in_words(model.configuration), 400).c_str());
  return 0;
}

}  // namespace

void add_import(CommandLine& line) {
  const auto options = std::make_shared<ImportOptions>();
  Command command = line.add("import", "Make a run's directory of a model of Hugging Face's");
  command
      .add_option("from", options->from,
                  "a directory with config.json and model.safetensors, or its shards and index")
      .required()
      .type_name("HF_DIR");
  command.add_option("run", options->run, "the directory to make").required().type_name("RUN_DIR");
  command.add_flag("--overwrite", options->how.overwrite, "a run that is there goes");
  command.footer(
      "The model is step 0 of the run; its tokenizer's files are kept with it.\n"
      "Example:\n"
      "  tutti import HF_DIR RUN_DIR\n"
      "  tutti train --data TOKENS.bin --checkpoint RUN_DIR --resume\n"
      "  tutti sample RUN_DIR --prompt \"Once\"");
  command.runs([options] { return import_model(*options); });
}

}  // namespace tutti::tool
