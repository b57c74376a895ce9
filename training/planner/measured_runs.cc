#include "training/planner/measured_runs.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <utility>

#include "base/csv.h"
#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "training/planner/search.h"

namespace tutti::training::planner {

namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// A row of the table, by column name.
class Row {
 public:
  Row(const std::vector<std::string>& columns, const CsvRow& row) {
    for (size_t i = 0; i < std::min(columns.size(), row.values.size()); ++i) {
      values_[columns[i]] = row.values[i];
    }
  }

  const std::string& text(const std::string& column) const {
    static const std::string kNone;
    const auto found = values_.find(column);
    return found == values_.end() ? kNone : found->second;
  }
  bool has(const std::string& column, std::string_view word) const {
    return lower(text(column)).find(word) != std::string::npos;
  }
  std::optional<double> number(const std::string& column) const {
    const std::optional<double> value = parse_number<double>(text(column));
    return value && std::isfinite(*value) ? value : std::nullopt;
  }
  std::optional<int64_t> whole(const std::string& column) const {
    const std::optional<double> value = number(column);
    constexpr double kMost = 1e9;  // limit, so that products of two numbers fit
    if (!value || *value < 0 || *value > kMost) return std::nullopt;
    return static_cast<int64_t>(std::llround(*value));
  }
  int64_t whole(const std::string& column, int64_t fallback) const {
    const std::optional<int64_t> value = whole(column);
    return value && *value > 0 ? *value : fallback;
  }

 private:
  std::map<std::string, std::string> values_;
};

// Reason why a row cannot be predicted.
struct Unpredictable {
  std::string reason;
};

// Returns the year in the column "date" ("2022-02"), or 2025 if the column contains no year (but a
// version such as "26.04").
int year_of(const Row& row) {
  const std::string& date = row.text("date");
  for (size_t at = date.find("20"); at != date.npos; at = date.find("20", at + 1)) {
    const auto year = parse_number<int>(std::string_view(date).substr(at, 4));
    if (year && *year > 2015 && *year < 2100) return *year;
  }
  return 2025;
}

Software software_of(const Row& row) {
  const int year = year_of(row);
  const int64_t zero = row.whole("zero", 0);
  if (row.has("source", "deepspeed") || row.has("source", "bigscience experiments") ||
      row.has("source", "bigscience train")) {
    return Software::deepspeed;
  }
  if (year < 2023) return zero == 3 ? Software::deepspeed : Software::megatron_2021;
  if (row.has("source", "megatron") || row.has("source", "nemo") || zero != 3) {
    return Software::megatron;
  }
  if (row.has("notes", "compile") || row.has("notes", "float8")) return Software::fsdp_compiled;
  return year < 2024 ? Software::fsdp_2023 : Software::fsdp;
}

Processor processor_of(const Row& row) {
  std::optional<Processor> processor = processor_named(row.text("gpu"));
  if (!processor) throw Unpredictable{cat("'", row.text("gpu"), "' is not a known processor")};
  processor->memory_GiB = row.number("gpu_mem_gib").value_or(processor->memory_GiB);
  return *processor;
}

// Returns the known model with the row's sizes; its number of layers may differ.
std::optional<ModelShape> known_like(const Row& row) {
  for (const std::string& name : model_names()) {
    const ModelShape model = load_model_shape(name);
    if (!model.gated) continue;
    if (model.hidden == row.whole("hidden") && model.heads == row.whole("heads") &&
        model.feed_forward == row.whole("ffn") && model.experts.count == row.whole("experts", 0)) {
      return model;
    }
  }
  return std::nullopt;
}

ModelShape model_of(const Row& row) {
  for (const char* size : {"layers", "hidden", "heads"}) {
    if (row.whole(size, 0) == 0) {
      throw Unpredictable{
          cat("the row does not have the number of ", size, " of '", row.text("model"), "'")};
    }
  }
  ModelShape m = known_like(row).value_or(ModelShape());
  const int64_t of_known = m.layers;
  const bool known = of_known > 0;
  m.name = row.text("model");
  m.layers = row.whole("layers", 0);
  constexpr int64_t kGpt2 = 50257;
  m.vocabulary = row.whole("vocab", known ? m.vocabulary : kGpt2);
  // If the row has fewer layers than the known model, it has the same fraction of dense layers.
  if (known && m.layers < of_known) {
    m.experts.dense_layers = (m.experts.dense_layers * m.layers + of_known - 1) / of_known;
  }
  if (known) return m;
  m.hidden = row.whole("hidden", 0);
  m.heads = row.whole("heads", 0);
  m.kv_heads = row.whole("kv_heads", m.heads);
  m.head_width = std::max<int64_t>(1, m.hidden / m.heads);
  m.feed_forward = row.whole("ffn", 4 * m.hidden);
  m.gated =
      m.feed_forward != 4 * m.hidden || m.kv_heads != m.heads || row.has("notes", "swiglu=true");
  m.has_biases = !m.gated;
  m.tied = !m.gated;
  if (!m.gated) m.positions = row.whole("seq", 0);
  m.experts.count = row.whole("experts", 0);
  if (m.experts.count > 0) {
    m.experts.chosen = row.whole("topk", 1);
    m.experts.hidden = row.whole("moe_ffn", m.feed_forward);
  }
  return m;
}

Cluster cluster_of(const Row& row, const Processor& processor, int64_t ranks) {
  const int64_t each = std::min(row.whole("gpus_per_node", processor.usual_host), ranks);
  const double inside = row.number("intra_GBps").value_or(processor.link_GBps);
  const double card = row.number("inter_GBps").value_or(processor.card_GBps);
  const std::string name = processor.name.substr(0, processor.name.find('-'));
  const int64_t hosts = (ranks + each - 1) / each;
  std::string line = cat(each, "x", name, " x ", hosts, ", NVLink ", inside);
  if (hosts > 1) line += cat(", IB ", each, "x", card);
  return load_cluster(line);
}

Recompute recompute_of(const Row& row) {
  const std::string text = lower(row.text("recompute"));
  if (text.starts_with("full")) return Recompute::full;
  if (text.empty() || text.starts_with("none")) return Recompute::none;
  return Recompute::selective;
}

Precision precision_of(const Row& row) {
  const std::string text = lower(row.text("precision"));
  const bool eight = text.find("fp8") != text.npos || text.find("fp4") != text.npos;
  return eight ? Precision::eight : Precision::half;
}

// Returns the number of ranks of an axis, or `fallback` if the row does not give it. Throws
// Unpredictable if the number exceeds the limit of a cluster.
int axis_in(const Row& row, const char* name, int fallback) {
  constexpr double kMost = 1 << 20;
  if (row.number(name).value_or(0) > kMost) {
    throw Unpredictable{cat(name, " is ", row.text(name))};
  }
  return static_cast<int>(row.whole(name, fallback));
}

// Returns the row's ZeRO stage, if it has one. Throws Unpredictable for a stage that does not
// exist.
std::optional<int> zero_in(const Row& row) {
  const std::optional<double> stage = row.number("zero");
  if (!stage) return std::nullopt;
  if (*stage < 0 || *stage > 3) throw Unpredictable{cat("unknown ZeRO stage ", row.text("zero"))};
  return static_cast<int>(*stage);
}

// Returns the virtual stages from Megatron's flag in the notes or from column vp. If the row has
// neither, returns 1 if the notes list other flags, and 0 (unknown) if they do not.
int virtual_stages_in(const Row& row, int stages) {
  constexpr std::string_view kFlag = "num-layers-per-virtual-pipeline-stage=";
  const std::string& notes = row.text("notes");
  const size_t at = notes.find(kFlag);
  const bool lists_flags = row.has("notes", "flags:");
  if (at == notes.npos) return axis_in(row, "vp", lists_flags ? 1 : 0);
  const std::string_view rest = std::string_view(notes).substr(at + kFlag.size());
  const auto layers = parse_number<int64_t>(rest.substr(0, rest.find_first_not_of("0123456789")));
  const int64_t in_stage = row.whole("layers", 0) / stages;
  return layers && *layers > 0 ? static_cast<int>(std::max<int64_t>(1, in_stage / *layers)) : 0;
}

// Returns the row's layout. The micro-batch and the virtual stages are 0 if the row does not give
// them; other missing fields have defaults.
Layout layout_given_in(const Row& row, Software software, int64_t ranks, int64_t batch) {
  Layout layout;
  const auto axis = [&](const char* name) { return axis_in(row, name, 1); };
  layout.tensor = axis("tp");
  layout.stages = axis("pp");
  layout.context = axis("cp");
  layout.expert = axis("ep");
  layout.virtual_stages = virtual_stages_in(row, layout.stages);
  const int64_t in_stage = ranks / layout.stages;
  const bool shares = in_stage % (int64_t{layout.expert} * layout.tensor) == 0 &&
                      !row.has("notes", "expert-tensor-parallel-size=1");
  layout.expert_tensor = shares ? layout.tensor : 1;
  layout.zero = zero_in(row).value_or(1);
  layout.recompute = recompute_of(row);
  layout.micro_batch = row.whole("mbs", 0);
  const bool has_sp = row.whole("sp").has_value();
  layout.sequence_parallel =
      layout.tensor > 1 && (has_sp ? row.whole("sp", 0) > 0 : software == Software::megatron);
  const int64_t cut = int64_t{layout.tensor} * layout.stages * layout.context;
  if (ranks % cut != 0) {
    throw Unpredictable{cat(ranks, " processors are not a multiple of tp x pp x cp = ", cut)};
  }
  layout.data = static_cast<int>(ranks / cut);
  if (layout.micro_batch > 0 && batch < layout.micro_batch * layout.data) {
    throw Unpredictable{cat("a batch of ", batch, " has no ", layout.micro_batch,
                            " sequences for each of ", layout.data, " data ranks")};
  }
  return layout;
}

// Returns all layouts that match the row. `said`: the row's own layout, from layout_given_in().
std::vector<Layout> layouts_of(const Layout& said, const Job& job) {
  std::vector<int64_t> micro_batches = {said.micro_batch};
  const int64_t each = std::max<int64_t>(1, job.global_batch / said.data);
  if (said.micro_batch == 0) {
    micro_batches.clear();
    for (const int64_t size : {1, 2, 4}) {
      if (each % size == 0) micro_batches.push_back(size);
    }
  }
  std::vector<int> virtuals = {std::max(1, said.virtual_stages)};
  const int64_t in_stage = job.model.layers / said.stages;
  const bool interleaves =
      job.software == Software::megatron_2021 || job.software == Software::megatron;
  if (said.virtual_stages == 0 && said.stages > 1 && interleaves) {
    virtuals.clear();
    for (const int chunks : {1, 2, 3, 4}) {
      if (in_stage % chunks == 0) virtuals.push_back(chunks);
    }
  }
  std::vector<Layout> layouts;
  for (const int64_t size : micro_batches) {
    for (const int chunks : virtuals) {
      Layout layout = said;
      layout.micro_batch = size;
      layout.virtual_stages = chunks;
      // FSDP's pipelines split the local batch into micro-batches of one sequence.
      if (layout.zero == 3 && layout.stages > 1 && each < size * layout.stages)
        layout.micro_batch = 1;
      layouts.push_back(layout);
    }
  }
  return layouts;
}

// Adds variants with recomputation, which are used if the others do not fit.
void add_recomputing(std::vector<Layout>& layouts) {
  const std::vector<Layout> plain = layouts;
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    for (Layout layout : plain) {
      layout.recompute = recompute;
      layouts.push_back(layout);
    }
  }
}

// Returns the best layout with the axes that the row gives; cp is 1 if the row does not give it.
std::vector<Layout> best_layouts(const Row& row, const Job& job) {
  Constraints constraints;
  const auto fix = [&](const char* axis, std::optional<int>& value) {
    if (const int ranks = axis_in(row, axis, 0); ranks > 0) value = ranks;
  };
  fix("tp", constraints.tensor);
  fix("pp", constraints.stages);
  fix("dp", constraints.data);
  fix("cp", constraints.context);
  fix("ep", constraints.expert);
  constraints.zero = zero_in(row);
  if (const int64_t size = row.whole("mbs", 0); size > 0) constraints.micro_batch = size;
  if (!constraints.context) constraints.context = 1;
  if (!row.text("recompute").empty()) constraints.recompute = recompute_of(row);
  return {search(job, constraints, Efficiencies(), 1).layouts.front().layout};
}

// Returns the measured step time, derived from tokens or FLOPs per second if the row has no time.
std::optional<double> seconds_of(const Row& row, const Job& job, int64_t ranks) {
  if (const auto seconds = row.number("step_s")) return seconds;
  const double tokens = static_cast<double>(job.global_batch * job.sequence);
  if (const auto rate = row.number("tok_s_gpu"))
    return tokens / (*rate * static_cast<double>(ranks));
  const auto TFLOPs = row.number("tflops_gpu");
  if (!TFLOPs || *TFLOPs <= 0) return std::nullopt;
  double operations =
      static_cast<double>(job.global_batch) * model_operations(job.model, job.sequence);
  if (row.has("flops_def", "hardware")) operations *= 4.0 / 3;  // includes a recomputed forward
  return operations / (*TFLOPs * 1e12 * static_cast<double>(ranks));
}

MemoryRules memory_rules_of(const Row& row, Software software) {
  MemoryRules rules = memory_rules(software);
  if (row.has("notes", "=flash")) rules.context = 0.03 * kGiB;
  rules.last_stage = row.has("mem_def", "last rank");
  if (row.has("mem_def", "activations")) {
    rules.measure = row.has("mem_def", "percent") ? MemoryMeasure::part_of_activations
                                                  : MemoryMeasure::activations;
  }
  if (row.has("mem_def", "nvidia-smi")) rules.context += 1.5 * kGiB;
  // A loss that is compiled with the output layer keeps fewer bytes per logit; from 2025 on it
  // keeps no 32-bit logits.
  if (software == Software::fsdp_compiled) rules.logit = year_of(row) > 2024 ? 3 : 10;
  return rules;
}

// Throws Unpredictable if the row's time requires more than the processor's peak rate.
void require_possible(const Job& job, const Layout& layout, double seconds) {
  const double part = mfu(job, layout, seconds);
  if (part <= 1) return;
  const double peak = 1e-12 * peak_of(job);
  throw Unpredictable{cat("its time requires ", std::lround(part * peak),
                          " TFLOP/s of a processor with a peak of ", std::lround(peak),
                          ": the batch, the time or a size is wrong")};
}

MeasuredRun run_of(const Row& row) {
  MeasuredRun run;
  run.id = row.text("id");
  run.calibrates = row.text("split") == "calibrate";
  run.memory = row.number("mem_gib");
  try {
    Job& job = run.job;
    job.software = software_of(row);
    job.has_flash_attention = !is_of_2021(job.software) && !row.has("notes", "=unfused") &&
                              !row.has("notes", "transformer-impl=local");
    job.processor = processor_of(row);
    job.model = model_of(row);
    require_possible(job.model);
    job.sequence = row.whole("seq", 0);
    job.global_batch = row.whole("gbs", 0);
    const int64_t ranks = row.whole("gpus", 0);
    for (const auto& [column, value] :
         {std::pair("seq", job.sequence), {"gbs", job.global_batch}, {"gpus", ranks}}) {
      if (value == 0) throw Unpredictable{cat("the row has no ", column)};
    }
    job.precision = precision_of(row);
    job.cluster = cluster_of(row, job.processor, ranks);
    run.memory_rules = memory_rules_of(row, job.software);
    const bool has_mesh = row.whole("tp", 0) > 0 && row.whole("pp", 0) > 0;
    run.open = has_mesh
                   ? layouts_of(layout_given_in(row, job.software, ranks, job.global_batch), job)
                   : best_layouts(row, job);
    if (run.open.empty()) throw Unpredictable{"no micro-batch divides the batch"};
    if (row.text("recompute").empty()) add_recomputing(run.open);
    run.layout = run.open.front();
    if (!row.has("use", "memory")) run.seconds = seconds_of(row, job, ranks);
    if (run.seconds) require_possible(job, run.layout, *run.seconds);
  } catch (const Unpredictable& why) {
    run.reason = why.reason;
  } catch (const Error& error) {
    run.reason = error.what();
  }
  return run;
}

}  // namespace

std::vector<MeasuredRun> read_measured_runs(std::string_view text, const std::string& name) {
  const std::vector<CsvRow> rows = parse_csv(text);
  if (rows.empty()) throw Error(ErrorCode::invalid_argument, cat(name, " is empty"));
  const std::vector<std::string>& columns = rows[0].values;
  for (const char* needed : {"gpu", "gpus", "model", "seq", "gbs"}) {
    if (std::ranges::count(columns, needed) == 0) {
      throw Error(
          ErrorCode::invalid_argument, cat(name, " has no column '", needed, "'"),
          {.where = "its first line",
           .remedy = "write one run per row, with the columns of the planner's documentation"});
    }
  }
  std::vector<MeasuredRun> runs;
  for (size_t i = 1; i < rows.size(); ++i) runs.push_back(run_of(Row(columns, rows[i])));
  return runs;
}

RunPrediction predict(const MeasuredRun& run, const Efficiencies& efficiencies) {
  RunPrediction best;
  bool fits = false;
  for (const Layout& layout : run.open) {
    const StepTime time = step_time(run.job, layout, efficiencies);
    const MemoryUse memory = memory_use(run.job, layout, run.memory_rules);
    const bool its = memory.total() <= run.job.processor.memory_GiB * kGiB;
    const bool better = its != fits ? its : time.total() < best.time.total();
    if (&layout != run.open.data() && !better) continue;
    best = {.layout = layout, .time = time, .memory = memory};
    fits = its;
  }
  best.seconds = time_interval(run.job, best.time.total());
  best.measured_memory = measured_memory(run.job, best.layout, run.memory_rules);
  return best;
}

}  // namespace tutti::training::planner
