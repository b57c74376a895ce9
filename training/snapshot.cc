#include "training/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/save.h"
#include "training/texts.h"

namespace tutti::training {
namespace {

constexpr const char* kScaler = "loss_scaler";
constexpr const char* kBufferPrefix = "buffer.";

Tensor as_row(std::span<float> values) {
  return tensor_at(values.data(), DType::f32, 1, std::ssize(values));
}

const TensorInfo& stored(const TensorSource& source, const std::string& name,
                         const std::vector<int64_t>& shape) {
  const TensorInfo* info = source.find(name);
  if (info != nullptr && info->shape == shape) return *info;
  throw Error(
      ErrorCode::invalid_argument,
      cat("the checkpoint's tensor ", name, info == nullptr ? " is missing" : " has another shape"),
      {.cause = "it was saved from another model or with another optimizer",
       .remedy = "give the options with which it was trained"});
}

void load_kind(Replica& replica, const TensorSource& source, size_t kind) {
  replica.finish_values();
  const std::string prefix = replica.kinds()[kind] + ".";
  for (const OwnedPiece& piece : replica.owned()) {
    const std::string name = prefix + piece.spec->name;
    stored(source, name, piece.spec->shape);
    source.read(name, piece.piece.first, as_row(replica.values_of(piece, kind)));
  }
}

void load_buffers(Model& model, const TensorSource& source) {
  for (const NamedBuffer& buffer : model.buffers()) {
    const std::string name = kBufferPrefix + buffer.name;
    stored(source, name, {std::ssize(buffer.values)});
    source.read(name, 0, as_row(buffer.values));
  }
}

}  // namespace

void save_snapshot(Replica& replica, Model& model, Snapshot snapshot) {
  std::vector<TensorPiece> pieces;
  if (replica.saves()) {
    const std::vector<std::string> kinds = replica.kinds();
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      for (const OwnedPiece& piece : replica.owned()) {
        if (piece.copy) continue;
        pieces.push_back({kinds[kind] + "." + piece.spec->name, piece.spec->shape,
                          piece.piece.first, as_row(replica.values_of(piece, kind))});
      }
    }
  }
  replica.share_buffers();
  if (replica.leads_stage()) {
    for (const NamedBuffer& buffer : replica.buffers()) {
      pieces.push_back(
          {kBufferPrefix + buffer.name, {std::ssize(buffer.values)}, 0, as_row(buffer.values)});
    }
  }
  snapshot.state["step"] = snapshot.step;
  if (replica.scaler()) {
    const LossScaler::State& scaler = replica.scaler()->state();
    snapshot.state[kScaler] = {{"scale", scaler.scale},
                               {"good_steps", scaler.good_steps},
                               {"overflows_left", scaler.overflows_left}};
  }
  save_checkpoint({.directory = snapshot.directory,
                   .step = snapshot.step,
                   .model = model.description(),
                   .configuration = std::move(snapshot.configuration),
                   .state = std::move(snapshot.state),
                   .keep = snapshot.keep},
                  pieces, group_of(replica.world()));
}

Json load_snapshot(Replica& replica, Model& model, const std::string& directory) {
  const Checkpoint checkpoint = Checkpoint::open(directory);
  const Manifest& manifest = checkpoint.manifest();
  if (manifest.model != model.description()) {
    throw Error(ErrorCode::invalid_argument,
                cat("the checkpoint is of another model: ", printable(manifest.model, 400)),
                {.where = checkpoint.path(),
                 .cause = cat("the options given here make ", model.description()),
                 .remedy = "give the model's options as they were when it was saved"});
  }
  for (size_t kind = 0; kind < replica.kinds().size(); ++kind) load_kind(replica, checkpoint, kind);
  load_buffers(model, checkpoint);
  if (replica.scaler() && manifest.state.contains(kScaler)) {
    const Json& scaler = manifest.state[kScaler];
    replica.scaler()->restore({scaler.at("scale").get<double>(),
                               scaler.at("good_steps").get<int64_t>(),
                               scaler.at("overflows_left").get<int>()});
  }
  replica.publish();
  return manifest.state;
}

void load_parameters(Replica& replica, const TensorSource& source, const std::string& path) {
  try {
    load_kind(replica, source, 0);
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), {.where = path});
  }
  replica.publish();
}

}  // namespace tutti::training
