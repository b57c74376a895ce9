#include "training/pipeline/profile.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <typeindex>
#include <utility>

#include "base/error.h"
#include "base/median.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/filled.h"

namespace tutti::training::pipeline {
namespace {

using Clock = std::chrono::steady_clock;

struct Times {
  double forward = 0;  // seconds
  double backward = 0;
};

struct Measured {
  Times times;
  UnitMemory memory;
  UnitMessages messages;
};

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Points a unit's parameters at memory of the arena during the object's lifetime.
class BoundUnit {
 public:
  BoundUnit(ParameterTable& table, int unit, const RunnerOptions& options, Arena& arena)
      : table_(table), used_(table.used_by(unit)) {
    for (const int index : used_) {
      const ParameterSpec& spec = table.specs()[static_cast<size_t>(index)];
      const int64_t rows = spec.local_rows();
      const int64_t cols = rows == 0 ? 0 : spec.local_count() / rows;
      const Tensor value = filled(arena, options.dtype, rows, cols, [&](std::span<float> values) {
        initial_values(spec, options.seed, 0, values);
      });
      // f32, because it sums over micro-batches
      const Tensor gradient = arena.take(DType::f32, rows, cols);
      zero(gradient);
      table.set_value(index, value);
      table.set_gradient(index, gradient);
    }
  }
  ~BoundUnit() {
    for (const int index : used_) {
      table_.set_value(index, {});
      table_.set_gradient(index, {});
    }
  }
  BoundUnit(const BoundUnit&) = delete;
  BoundUnit& operator=(const BoundUnit&) = delete;

 private:
  ParameterTable& table_;
  std::vector<int> used_;
};

// Key of measurements: units with the same key take the same time.
struct Kind {
  std::type_index type;
  std::array<int64_t, 4> shapes;  // shapes of a sample's input and output
  std::array<ActivationLayout, 2> layouts;
  bool is_last;
  std::vector<std::vector<int64_t>> parameters;
  bool operator==(const Kind&) const = default;
};

class Profiler {
 public:
  Profiler(Model& model, const MicroBatch& batch, const RunnerOptions& options, int runs)
      : model_(model), batch_(batch), options_(options), runs_(runs) {}

  Layer layer(int index) {
    const Unit& unit = unit_at(index);
    const OutputShape shape = unit.output_shape();
    const auto bytes = static_cast<int64_t>(size_of(options_.dtype));
    const Times times = measured(index).times;
    Layer layer{unit.name(), times.forward, times.backward};
    layer.activation_bytes = rows_of(shape) * shape.cols_at(model_.parameters().mesh()) * bytes;
    for (const int parameter : model_.parameters().used_by(index)) {
      layer.parameter_bytes += spec(parameter).local_count() * bytes;
    }
    if (options_.checkpoint_units && !is_last(index) && !unit.backward_needs_nothing()) {
      layer.backward += layer.forward;
    }
    return layer;
  }
  UnitMemory memory(int index) { return measured(index).memory; }
  UnitMessages messages(int index) { return measured(index).messages; }

 private:
  Unit& unit_at(int index) { return *model_.units()[static_cast<size_t>(index)]; }
  bool is_last(int index) const { return index + 1 == std::ssize(model_.units()); }
  const ParameterSpec& spec(int parameter) const {
    return model_.parameters().specs()[static_cast<size_t>(parameter)];
  }
  int64_t rows_of(const OutputShape& shape) const {
    return shape.rows_at(model_.parameters().mesh(), batch_);
  }
  // Returns the shape of the output of unit `index` - 1; empty for the first unit.
  OutputShape input_shape(int index) {
    return index == 0 ? OutputShape{0, 0} : unit_at(index - 1).output_shape();
  }

  Kind kind_of(int index) {
    const Unit& unit = unit_at(index);
    const OutputShape in = input_shape(index);
    const OutputShape out = unit.output_shape();
    Kind kind{typeid(unit),
              {in.rows, in.cols, out.rows, out.cols},
              {in.layout, out.layout},
              is_last(index),
              {}};
    for (const int parameter : model_.parameters().used_by(index)) {
      kind.parameters.push_back(spec(parameter).slice().shape());
    }
    return kind;
  }

  Measured measured(int index) {
    const Kind kind = kind_of(index);
    const auto known = std::ranges::find(known_, kind, &std::pair<Kind, Measured>::first);
    if (known != known_.end()) return known->second;
    return known_.emplace_back(kind, measure(index)).second;
  }

  Measured measure(int index) {
    const ArenaScope scope(arena_);
    const BoundUnit bound(model_.parameters(), index, options_, arena_);
    const auto matrix = [&](const OutputShape& shape, uint64_t seed) {
      return random_matrix(arena_, options_.dtype, rows_of(shape),
                           shape.cols_at(model_.parameters().mesh()), seed);
    };
    const ConstTensor input = index == 0 ? Tensor{} : matrix(input_shape(index), 1);
    const ConstTensor gradient =
        is_last(index) ? Tensor{} : matrix(unit_at(index).output_shape(), 2);
    std::vector<double> forward;
    std::vector<double> backward;
    UnitMessages messages;
    const UnitMemory memory = memory_of(unit_at(index), input, gradient, messages);
    for (int i = 0; i < runs_; ++i) {
      const Times times = run(unit_at(index), input, gradient);
      forward.push_back(times.forward);
      backward.push_back(times.backward);
    }
    return {{median(forward), median(backward)}, memory, messages};
  }

  // Measures the memory of a unit in an untimed run with separate arenas.
  UnitMemory memory_of(Unit& unit, ConstTensor input, ConstTensor gradient,
                       UnitMessages& messages) {
    Arena kept, temporary;
    const auto bytes = [](size_t count) { return static_cast<int64_t>(count); };
    Pass forward = pass_in(kept);
    forward.unsent = &messages.forward;
    unit.forward(forward, input);
    const UnitMemory memory{.kept = bytes(kept.mark()), .forward = bytes(kept.high_water())};
    Pass backward = pass_in(temporary);
    backward.unsent = &messages.backward;
    unit.backward(backward, gradient);
    return {memory.kept, memory.forward, bytes(temporary.high_water())};
  }

  Pass pass_in(Arena& arena) const {
    return {{.batch = &batch_,
             .dtype = options_.dtype,
             .seed = options_.seed,
             .gemm_format = options_.gemm_format,
             .slices = model_.slices()},
            arena,
            /*recomputing=*/true};  // the flag recomputing keeps running statistics unchanged
  }

  Times run(Unit& unit, ConstTensor input, ConstTensor gradient) {
    const ArenaScope scope(arena_);
    Pass pass = pass_in(arena_);
    const Clock::time_point start = Clock::now();
    unit.forward(pass, input);
    const Clock::time_point middle = Clock::now();
    unit.backward(pass, gradient);
    return {seconds(middle - start), seconds(Clock::now() - middle)};
  }

  Model& model_;
  const MicroBatch& batch_;
  RunnerOptions options_;
  int runs_;
  Arena arena_;
  std::vector<std::pair<Kind, Measured>> known_;
};

}  // namespace

Profile profile_model(Model& model, const MicroBatch& batch, const RunnerOptions& options,
                      int runs) {
  if (batch.samples < 1 || runs < 1) {
    throw Error(ErrorCode::invalid_argument,
                cat("a model cannot be profiled with ", runs, " runs of a micro-batch of ",
                    batch.samples, " samples"),
                {.remedy = "use at least one of each"});
  }
  Profile profile{.model = in_words(model.configuration()), .samples = batch.samples};
  Profiler profiler(model, batch, options, runs);
  for (int unit = 0; unit < std::ssize(model.units()); ++unit) {
    profile.layers.push_back(profiler.layer(unit));
    profile.memory.push_back(profiler.memory(unit));
    profile.messages.push_back(profiler.messages(unit));
  }
  return profile;
}

}  // namespace tutti::training::pipeline
