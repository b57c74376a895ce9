// tutti import: creates a run directory from a Hugging Face model.
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
  Command command = line.add("import", "create a run directory from a Hugging Face model");
  command
      .add_option("from", options->from,
                  "Hugging Face model directory, which contains config.json and either "
                  "model.safetensors or "
                  "its shards and their index")
      .required()
      .type_name("HF_DIR");
  command.add_option("run", options->run, "run directory to create")
      .required()
      .type_name("RUN_DIR");
  command.add_flag("--overwrite", options->how.overwrite, "replace an existing run");
  command.footer(
      "The model becomes step 0 of the run; its tokenizer files are copied into the run "
      "directory.\n"
      "Example:\n"
      "  tutti import HF_DIR RUN_DIR\n"
      "  tutti train --data TOKENS.bin --checkpoint RUN_DIR --resume\n"
      "  tutti sample RUN_DIR --prompt \"Once\"");
  command.runs([options] { return import_model(*options); });
}

}  // namespace tutti::tool
