// tutti checkpoint: shows and verifies checkpoints.
#include "training/checkpoint/checkpoint.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "training/checkpoint/exchange.h"
#include "training/checkpoint/safetensors.h"
#include "training/checkpoint/step_directory.h"
#include "training/core/model.h"

namespace tutti::tool {

namespace {

using training::Checkpoint;
using training::Manifest;
using training::TensorEntry;

struct CheckpointOptions {
  std::string directory;
  bool verify = false;
  std::string exported;
  std::string dtype = "f32";
  std::string json;
  bool tensors = false;
};

struct StoredStep {
  std::string folder;
  std::optional<Checkpoint> checkpoint;  // nothing if the step is damaged
  std::string problem;
};

StoredStep looked_at(const std::string& folder, bool verify) {
  StoredStep step{.folder = folder, .checkpoint = {}, .problem = {}};
  try {
    Checkpoint checkpoint = Checkpoint::open(folder);
    checkpoint.check_sizes();
    if (verify) checkpoint.verify();
    step.checkpoint = std::move(checkpoint);
  } catch (const Error& error) {
    step.problem = error.what();
  }
  return step;
}

// Returns the steps in the directory, or a single step if the directory is a step's folder.
std::vector<StoredStep> steps_of(const CheckpointOptions& options) {
  std::vector<StoredStep> steps;
  for (const int64_t step : training::steps_in(options.directory)) {
    const std::filesystem::path parent(options.directory);
    steps.push_back(looked_at(parent / training::step_name(step), options.verify));
  }
  if (steps.empty()) {
    steps.push_back(looked_at(Checkpoint::open(options.directory).path(), options.verify));
  }
  return steps;
}

uint64_t bytes_of(const training::TensorInfo& tensor) {
  return static_cast<uint64_t>(tensor.count()) * size_of(tensor.dtype);
}

void print_step(const StoredStep& step, const std::string& latest, bool verified) {
  if (!step.checkpoint) {
    std::printf("%s  damaged: %s\n", step.folder.c_str(), step.problem.c_str());
    return;
  }
  const Manifest& manifest = step.checkpoint->manifest();
  std::printf("%s  %d file(s), %zu tensors, %s%s%s\n", step.folder.c_str(), manifest.world(),
              manifest.tensors.size(), human_bytes(manifest.bytes()).c_str(),
              verified ? ", complete" : "",
              step.checkpoint->path() == latest ? ", the latest" : "");
}

void print_model(const Checkpoint& checkpoint, bool all) {
  const Manifest& manifest = checkpoint.manifest();
  if (!manifest.run.empty()) std::printf("\nrun %s", printable(manifest.run).c_str());
  std::printf("\nstep %lld of %s\n", static_cast<long long>(manifest.step),
              printable(training::in_words(manifest.model), 400).c_str());
  if (!all) {
    std::printf("%zu tensors (list them with --tensors)\n", manifest.tensors.size());
    return;
  }
  std::printf("%-48s %-5s %-18s %10s %7s\n", "tensor", "type", "shape", "size", "pieces");
  for (const TensorEntry& tensor : manifest.tensors) {
    std::printf("%-48s %-5s %-18s %10s %7zu\n", printable(tensor.info.name).c_str(),
                std::string(name(tensor.info.dtype)).c_str(),
                training::shape_text(tensor.info.shape).c_str(),
                human_bytes(bytes_of(tensor.info)).c_str(), tensor.pieces());
  }
}

Json to_json(const StoredStep& step, bool verified) {
  Json result = {{"path", step.folder}};
  if (!step.checkpoint) {
    result["problem"] = step.problem;
    return result;
  }
  const Manifest& manifest = step.checkpoint->manifest();
  result["step"] = manifest.step;
  result["run"] = manifest.run;
  result["model"] = manifest.model;
  result["configuration"] = manifest.configuration;
  result["state"] = manifest.state;
  result["bytes"] = manifest.bytes();
  if (verified) result["whole"] = true;
  for (int i = 0; i < manifest.world(); ++i) {
    const training::FileEntry& file = manifest.files[static_cast<size_t>(i)];
    result["files"].push_back(
        {{"name", manifest.file_name(i)}, {"bytes", file.bytes}, {"checksum", file.checksum}});
  }
  for (const TensorEntry& tensor : manifest.tensors) {
    result["tensors"].push_back({{"name", tensor.info.name},
                                 {"type", std::string(name(tensor.info.dtype))},
                                 {"shape", tensor.info.shape},
                                 {"bytes", bytes_of(tensor.info)},
                                 {"pieces", tensor.pieces()}});
  }
  return result;
}

DType export_type(const std::string& text) {
  const std::optional<DType> type = parse_dtype(text);
  if (type) return *type;
  throw Error(ErrorCode::invalid_argument, cat("--dtype ", text, " is not a supported type"),
              {.remedy = "use f32, bf16 or f16"});
}

int show(const CheckpointOptions& options) {
  open_for_appending(options.json, "--json");
  const DType dtype = export_type(options.dtype);
  const std::vector<StoredStep> steps = steps_of(options);
  // The step from which a training would resume. If it is damaged, the error is the one that
  // training would report.
  std::optional<Checkpoint> chosen;
  std::string refusal;
  try {
    chosen = Checkpoint::open(options.directory);
  } catch (const Error& error) {
    refusal = error.what();
  }
  bool good = refusal.empty();
  Json report = {{"directory", options.directory}, {"steps", Json::array()}};
  for (const StoredStep& step : steps) {
    good = good && step.checkpoint;
    print_step(step, chosen ? chosen->path() : "", options.verify);
    report["steps"].push_back(to_json(step, options.verify));
  }
  if (chosen) report["latest"] = chosen->manifest().step;
  if (!options.json.empty()) write_file(options.json, report.dump(2) + "\n");
  if (!refusal.empty()) {
    std::fprintf(stderr, "tutti: %s\n", refusal.c_str());
  } else {
    print_model(*chosen, options.tensors);
  }
  if (chosen && !options.exported.empty()) {
    training::export_safetensors(*chosen, options.exported, dtype);
    std::printf("\nwrote the model of step %lld to %s\n",
                static_cast<long long>(chosen->manifest().step), options.exported.c_str());
  }
  return good ? 0 : 1;
}

}  // namespace

void add_checkpoint(CommandLine& line) {
  const auto o = std::make_shared<CheckpointOptions>();
  Command command =
      line.add("checkpoint", "show and verify the checkpoints of `tutti train --checkpoint`");
  command
      .add_option("directory", o->directory,
                  "checkpoint directory of a run, or the folder of one step")
      .type_name("DIR")
      .required();
  command.add_flag("--verify", o->verify, "read all files and verify their checksums");
  // Options of an earlier form of `tutti export`; hidden from --help.
  command.add_option("--export", o->exported, "").group("");
  command.add_option("--dtype", o->dtype, "").group("");
  command.add_flag("--tensors", o->tensors, "list every tensor with its type, shape and size");
  command.add_option("--json", o->json, "write the output as JSON to this file").type_name("FILE");
  command.footer(
      "The exit code is 1 if a checkpoint is damaged. Without --verify only missing files and "
      "wrong\n"
      "file sizes are detected.\n"
      "Example:\n"
      "  tutti checkpoint DIR --verify");
  command.runs([o] { return show(*o); });
}

}  // namespace tutti::tool
