#include "training/run/snapshot.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/checkpoint/checkpoint.h"
#include "training/checkpoint/tensor_source.h"
#include "training/core/group.h"
#include "training/kernels/elementwise.h"
#include "training/models/registry.h"

namespace tutti::training {
namespace {

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
       .remedy = "use the options of the saved run"});
}

// Path of a number in the state: "loss_scaler.scale" in {"loss_scaler": {"scale": ...}}.
struct Path {
  explicit Path(const std::string& name)
      : first(name.substr(0, name.find('.'))),
        second(first.size() < name.size() ? name.substr(first.size() + 1) : "") {}

  template <typename Number>
  void write(Json& state, Number value) const {
    (second.empty() ? state[first] : state[first][second]) = value;
  }
  template <typename Number>
  Number read(const Json& state, Number fallback) const {
    if (second.empty()) return state.value(first, fallback);
    return state.contains(first) ? state.at(first).value(second, fallback) : fallback;
  }

  std::string first, second;
};

// Name of a row in a checkpoint. If a worker consists of several ranks, synchronizers' rows belong
// to the ranks' parts of the model, so their names contain the place of the part. Each stage also
// counts the steps of its own compression.
struct RowName {
  RowName(Replica& replica, const std::string& row) : text(row) {
    const bool is_synchronizers = row.starts_with("sync.") || row.starts_with("own.");
    is_count = row == "warm_up.steps" || row == "onebit.steps";
    if (!is_synchronizers && !is_count) return;
    Mesh& mesh = replica.mesh();
    if (mesh.size(Axis::pipeline) > 1) text += cat(".stage", mesh.place(Axis::pipeline));
    if (mesh.size(Axis::tensor) == 1 || is_count) return;
    text += cat(".tensor", mesh.place(Axis::tensor));
    of_each_tensor_rank = true;
  }

  std::string text;
  bool is_count = false;
  bool of_each_tensor_rank = false;
};

// Returns the name of a row in this checkpoint. A run that was divided into other stages saved
// counts of steps under other names.
std::string name_in(const TensorSource& source, Replica& replica, const std::string& row) {
  const RowName name(replica, row);
  for (const std::string& other : {row, cat(row, ".stage0")}) {
    if (name.is_count && !source.has(name.text) && source.has(other)) return other;
  }
  return name.text;
}

std::string name_of(const Replica& replica, const std::string& kind, int parameter) {
  return kind + "." + replica.spec(parameter).name;
}

class Saver : public StateVisitor {
 public:
  Saver(Replica& replica, int64_t step, Json& state)
      : replica_(replica), step_(step), state_(state) {}

  int64_t step() const override { return step_; }
  bool saves() const override { return true; }
  bool has(const std::string&) const override { return true; }
  void number(const std::string& name, double& value, double) override {
    Path(name).write(state_, value);
  }
  void number(const std::string& name, int64_t& value, int64_t) override {
    Path(name).write(state_, value);
  }
  void pieces(const std::string& kind, const ValuesOf& values_of) override {
    if (!replica_.saves()) return;
    for (const OwnedPiece& piece : replica_.owned()) {
      if (piece.copy) continue;
      saved.push_back({kind + "." + piece.spec->name, piece.spec->shape, piece.piece.first,
                       values_of(piece), piece.spec->slice()});
    }
  }
  void blocks(const std::string& kind, int64_t block, const ValuesOf& values_of) override {
    if (!replica_.saves()) return;
    for (const OwnedPiece& piece : replica_.owned()) {
      const Tensor values = piece.copy ? Tensor() : values_of(piece);
      if (values.empty()) continue;
      const Slice slice = piece.spec->slice().in_blocks(block).value();
      saved.push_back({kind + "." + piece.spec->name, slice.whole_shape(),
                       piece.piece.first / block, values, slice});
    }
  }
  void whole(const std::string& kind, int parameter, const std::vector<int64_t>& shape,
             Tensor values) override {
    const std::vector<int>& copies = replica_.storage().options().copies;
    if (!replica_.saves() || std::ranges::count(copies, parameter) > 0) return;
    saved.push_back({name_of(replica_, kind, parameter), shape, 0, values});
  }
  void row(const std::string& row, Tensor values, RowKind kind) override {
    const RowName name(replica_, row);
    if (!name.of_each_tensor_rank && !replica_.first_of_model()) return;
    const int64_t count = values.cols;
    const int rank = replica_.group_rank();
    if (kind != RowKind::same) {
      saved.push_back({name.text, {replica_.group_size(), count}, rank * count, values});
    } else if (rank == 0) {
      saved.push_back({name.text, {count}, 0, values});
    }
  }

  std::vector<TensorPiece> saved;

 private:
  Replica& replica_;
  int64_t step_;
  Json& state_;
};

class StateLoader : public StateVisitor {
 public:
  StateLoader(Replica& replica, const TensorSource& source, int64_t step, const Json& state)
      : replica_(replica), source_(source), step_(step), state_(state) {}

  int64_t step() const override { return step_; }
  bool saves() const override { return false; }
  bool has(const std::string& row) const override {
    return source_.has(name_in(source_, replica_, row));
  }
  void number(const std::string& name, double& value, double fallback) override {
    value = Path(name).read(state_, fallback);
  }
  void number(const std::string& name, int64_t& value, int64_t fallback) override {
    value = Path(name).read(state_, fallback);
  }
  void pieces(const std::string& kind, const ValuesOf& values_of) override {
    if (values_alone && kind != "model") return;
    for (const OwnedPiece& piece : replica_.owned()) {
      const std::string name = kind + "." + piece.spec->name;
      stored(source_, name, piece.spec->shape);
      read_slice(source_, name, piece.spec->slice(), piece.piece.first, values_of(piece));
      replica_.storage().evict(piece);
    }
  }
  void blocks(const std::string& kind, int64_t block, const ValuesOf& values_of) override {
    if (values_alone) return;
    for (const OwnedPiece& piece : replica_.owned()) {
      const Tensor values = values_of(piece);
      if (values.empty()) continue;
      const std::string name = kind + "." + piece.spec->name;
      const Slice slice = piece.spec->slice().in_blocks(block).value();
      stored(source_, name, slice.whole_shape());
      read_slice(source_, name, slice, piece.piece.first / block, values);
    }
  }
  void whole(const std::string& kind, int parameter, const std::vector<int64_t>& shape,
             Tensor values) override {
    if (values_alone) return;
    const std::string name = name_of(replica_, kind, parameter);
    stored(source_, name, shape);
    source_.read(name, 0, values);
    replica_.storage().evict(values);
  }
  void row(const std::string& row, Tensor values, RowKind kind) override {
    const std::string name = name_in(source_, replica_, row);
    if (kind != RowKind::same) return own_row(name, values, kind);
    stored(source_, name, {values.cols});
    source_.read(name, 0, values);
  }

  // True for an imported model, which has no optimizer state; the state then starts from zero.
  bool values_alone = false;

 private:
  void own_row(const std::string& name, Tensor values, RowKind kind) {
    const int64_t count = values.cols;
    const TensorInfo* info = source_.find(name);
    const int64_t ranks = info == nullptr || info->shape.empty() ? 0 : info->shape.front();
    stored(source_, name, {ranks, count});
    if (ranks == replica_.group_size()) {
      return source_.read(name, replica_.group_rank() * count, values);
    }
    std::vector<float> one(static_cast<size_t>(count));
    std::vector<double> sum(one.size());
    for (int64_t rank = 0; rank < ranks; ++rank) {
      source_.read(name, rank * count, as_row(one));
      std::ranges::transform(sum, one, sum.begin(), std::plus<double>());
    }
    const auto parts = static_cast<double>(kind == RowKind::summed ? replica_.group_size() : ranks);
    std::ranges::transform(sum, one.begin(),
                           [&](double value) { return static_cast<float>(value / parts); });
    convert(as_row(one), values);
  }

  Replica& replica_;
  const TensorSource& source_;
  int64_t step_;
  const Json& state_;
};

}  // namespace

SnapshotParts parts_of(Replica& replica, Model& model, Snapshot snapshot) {
  snapshot.state["step"] = snapshot.step;
  Saver saver(replica, snapshot.step, snapshot.state);
  replica.visit_state(saver);
  for (TensorPiece& piece : saver.saved) {
    if (!replica.storage().is_in_file(piece.data)) continue;
    piece.after_reading = [&replica](ConstTensor part) { replica.storage().evict(part); };
  }
  return {.request = {.directory = snapshot.directory,
                      .step = snapshot.step,
                      .model = model.configuration(),
                      .configuration = std::move(snapshot.configuration),
                      .state = std::move(snapshot.state),
                      .keep = snapshot.keep,
                      .best = snapshot.best},
          .pieces = std::move(saver.saved)};
}

void save_snapshot(Replica& replica, Model& model, Snapshot snapshot) {
  const SnapshotParts parts = parts_of(replica, model, std::move(snapshot));
  save_checkpoint(parts.request, parts.pieces, group_of(replica.world()));
}

Json load_snapshot(Replica& replica, Model& model, const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest();
  const Json saved = completed_model(manifest.model);
  if (tensors_of_model(saved) != tensors_of_model(model.configuration())) {
    throw Error(ErrorCode::invalid_argument,
                cat("the checkpoint contains another model: ", printable(in_words(saved), 400)),
                {.where = checkpoint.path(),
                 .cause = cat("the given options define ", in_words(model.configuration())),
                 .remedy = "use the model options of the saved run"});
  }
  StateLoader loader(replica, checkpoint, manifest.step, manifest.state);
  loader.values_alone = manifest.state.contains(kImportedFrom);
  replica.visit_state(loader);
  replica.publish();
  return manifest.state;
}

Json load_kept(Replica& replica, KeptState& kept) {
  StateLoader loader(replica, kept, kept.step(), kept.state());
  replica.visit_state(loader);  // collects the names of the states that are needed
  kept.fetch();
  replica.visit_state(loader);
  replica.publish();
  return kept.state();
}

void load_parameters(Replica& replica, const TensorSource& source, const std::string& path) {
  try {
    replica.finish_values();
    StateLoader(replica, source, 0, {}).pieces("model", [&](const OwnedPiece& piece) {
      return replica.values_of(piece, 0);
    });
    for (const NamedBuffer& buffer : replica.buffers()) {
      const TensorInfo* const info = find_buffer(source, buffer.name);
      if (info != nullptr) source.read(info->name, 0, as_row(buffer.values));
    }
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), {.where = path, .rank = error.rank()});
  }
  replica.publish();
}

}  // namespace tutti::training
