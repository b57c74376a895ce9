#include "training/snapshot.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/save.h"
#include "training/models/registry.h"
#include "training/texts.h"

namespace tutti::training {
namespace {

constexpr const char* kScaler = "loss_scaler";
constexpr const char* kUpdates = "updates";
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
    read_slice(source, name, piece.spec->slice(), piece.piece.first,
               replica.values_of(piece, kind));
  }
}

void load_buffers(Model& model, const TensorSource& source) {
  for (const NamedBuffer& buffer : model.buffers()) {
    const std::string name = kBufferPrefix + buffer.name;
    stored(source, name, {std::ssize(buffer.values)});
    source.read(name, 0, as_row(buffer.values));
  }
}

void add_hook_states(Replica& replica, std::vector<TensorPiece>& pieces) {
  for (const HookState& state : replica.hook_states()) {
    const int64_t count = state.values.cols;
    if (state.own && replica.first_of_model()) {
      pieces.push_back(
          {state.name, {replica.group_size(), count}, replica.group_rank() * count, state.values});
    } else if (!state.own && replica.leads_stage()) {
      pieces.push_back({state.name, {count}, 0, state.values});
    }
  }
}

// What each rank had of its own is its own again; other ranks than those that saved it share the
// sum.
void load_own_state(Replica& replica, const TensorSource& source, const HookState& state) {
  const int64_t count = state.values.cols;
  const TensorInfo* info = source.find(state.name);
  const int64_t ranks = info == nullptr || info->shape.empty() ? 0 : info->shape.front();
  stored(source, state.name, {ranks, count});
  if (ranks == replica.group_size()) {
    return source.read(state.name, replica.group_rank() * count, state.values);
  }
  std::vector<float> one(static_cast<size_t>(count));
  std::vector<double> sum(one.size());
  for (int64_t rank = 0; rank < ranks; ++rank) {
    source.read(state.name, rank * count, as_row(one));
    std::ranges::transform(sum, one, sum.begin(), std::plus<double>());
  }
  std::ranges::transform(sum, state.values.values<float>().begin(), [&](double value) {
    return static_cast<float>(value / replica.group_size());
  });
}

void load_hook_states(Replica& replica, const TensorSource& source) {
  const std::vector<HookState> states = replica.hook_states();
  if (!states.empty() && !source.has(states.front().name)) {
    if (replica.world().rank() != 0) return;
    return log(LogLevel::warning,
               "the checkpoint was saved without this compression, which begins anew");
  }
  for (const HookState& state : states) {
    if (state.own) {
      load_own_state(replica, source, state);
    } else {
      stored(source, state.name, {state.values.cols});
      source.read(state.name, 0, state.values);
    }
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
                          piece.piece.first, replica.values_of(piece, kind), piece.spec->slice()});
      }
    }
  }
  add_hook_states(replica, pieces);
  replica.share_buffers();
  if (replica.leads_stage()) {
    for (const NamedBuffer& buffer : replica.buffers()) {
      pieces.push_back(
          {kBufferPrefix + buffer.name, {std::ssize(buffer.values)}, 0, as_row(buffer.values)});
    }
  }
  snapshot.state["step"] = snapshot.step;
  snapshot.state[kUpdates] = replica.updates();
  if (replica.scaler()) {
    const LossScaler::State& scaler = replica.scaler()->state();
    snapshot.state[kScaler] = {{"scale", scaler.scale},
                               {"good_steps", scaler.good_steps},
                               {"overflows_left", scaler.overflows_left}};
  }
  save_checkpoint({.directory = snapshot.directory,
                   .step = snapshot.step,
                   .model = model.configuration(),
                   .configuration = std::move(snapshot.configuration),
                   .state = std::move(snapshot.state),
                   .keep = snapshot.keep},
                  pieces, group_of(replica.world()));
}

Json load_snapshot(Replica& replica, Model& model, const std::string& directory) {
  const Checkpoint checkpoint = Checkpoint::open(directory);
  const Manifest& manifest = checkpoint.manifest();
  const Json saved = completed_model(manifest.model);
  if (tensors_of_model(saved) != tensors_of_model(model.configuration())) {
    throw Error(ErrorCode::invalid_argument,
                cat("the checkpoint is of another model: ", printable(in_words(saved), 400)),
                {.where = checkpoint.path(),
                 .cause = cat("the options given here make ", in_words(model.configuration())),
                 .remedy = "give the model's options as they were when it was saved"});
  }
  const bool imported = manifest.state.contains(kImportedFrom);
  const size_t kinds = imported ? 1 : replica.kinds().size();
  for (size_t kind = 0; kind < kinds; ++kind) load_kind(replica, checkpoint, kind);
  load_buffers(model, checkpoint);
  if (!imported) load_hook_states(replica, checkpoint);
  if (replica.scaler() && manifest.state.contains(kScaler)) {
    const Json& scaler = manifest.state[kScaler];
    replica.scaler()->restore({scaler.at("scale").get<double>(),
                               scaler.at("good_steps").get<int64_t>(),
                               scaler.at("overflows_left").get<int>()});
  }
  // Without skipped steps, as in a checkpoint that does not say, each made one.
  replica.restore_updates(manifest.state.value(kUpdates, manifest.step));
  replica.publish();
  return manifest.state;
}

void load_parameters(Replica& replica, const TensorSource& source, const std::string& path) {
  try {
    load_kind(replica, source, 0);
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), {.where = path, .rank = error.rank()});
  }
  replica.publish();
}

}  // namespace tutti::training
