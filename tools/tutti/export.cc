// tutti export: writes a run's model as a Hugging Face directory or as one safetensors file.
#include "training/hugging_face/export.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/exclude.h"
#include "training/checkpoint/exchange.h"
#include "training/hugging_face/import.h"

namespace tutti::tool {
namespace {

struct ExportOptions {
  std::string run;
  std::string target;
  std::string dtype = "f32";
  std::string max_shard_size = "5G";
  bool overwrite = false;
};

bool is_file(const std::string& target) { return target.ends_with(".safetensors"); }

int export_model(const ExportOptions& options) {
  const std::optional<DType> dtype = parse_dtype(options.dtype);
  if (!dtype) {
    throw Error(ErrorCode::invalid_argument,
                cat("--dtype ", options.dtype, " is not a supported type"),
                {.remedy = "use f32, bf16 or f16"});
  }
  const training::Checkpoint checkpoint = training::Checkpoint::open(options.run);
  if (is_file(options.target)) {
    if (!options.overwrite && std::filesystem::exists(options.target)) {
      throw Error(ErrorCode::invalid_argument, cat(options.target, " exists"),
                  {.remedy = "use a new file, or --overwrite"});
    }
    training::export_safetensors(checkpoint, options.target, *dtype);
  } else {
    training::hugging_face::export_model(
        checkpoint, training::hugging_face::companions_of_step(checkpoint.path()), options.target,
        {.dtype = *dtype,
         .max_shard_size = parse_bytes(options.max_shard_size),
         .overwrite = options.overwrite});
  }
  std::printf("wrote the model of step %lld to %s\n",
              static_cast<long long>(checkpoint.manifest().step), options.target.c_str());
  return 0;
}

}  // namespace

void add_export(CommandLine& line) {
  const auto options = std::make_shared<ExportOptions>();
  Command command = line.add("export", "export the model of a run to a format of other programs");
  command
      .add_option("run", options->run, "checkpoint directory of a run, or the folder of one step")
      .required()
      .type_name("RUN_DIR");
  command
      .add_option("target", options->target,
                  "output: a Hugging Face model directory, or FILE.safetensors for a file that "
                  "contains only the tensors, with Tutti's names")
      .required()
      .type_name("HF_DIR|FILE.safetensors");
  command
      .add_option("--dtype", options->dtype, "data type of the exported tensors: f32, bf16 or f16")
      .type_name("T")
      .show_default();
  command
      .add_option("--max-shard-size", options->max_shard_size,
                  "maximum size of one file in bytes; larger models are split into several files "
                  "with an index")
      .type_name("BYTES")
      .show_default();
  command.add_flag("--overwrite", options->overwrite, "replace an earlier export");
  command.footer(
      "Load the result in transformers: AutoModelForCausalLM.from_pretrained(HF_DIR).\n"
      "Examples:\n"
      "  tutti export RUN_DIR HF_DIR --dtype bf16 --max-shard-size 2G\n"
      "  tutti export RUN_DIR model.safetensors");
  command.runs([command, options] {
    if (is_file(options->target)) exclude(command, "FILE.safetensors", {"--max-shard-size"});
    return export_model(*options);
  });
}

}  // namespace tutti::tool
