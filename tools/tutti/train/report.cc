#include "tools/tutti/train/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/text.h"
#include "training/run/memory_plan.h"

namespace tutti::tool {
namespace {

using training::MemoryReport;
using training::StepReport;
using training::total;

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string with_suffix(double value, const std::array<const char*, 4>& suffixes) {
  size_t index = 0;
  while (value >= 1000 && index + 1 < suffixes.size()) {
    value /= 1000;
    ++index;
  }
  char text[32];
  std::snprintf(text, sizeof(text), index == 0 ? "%.0f %s" : "%.1f %s", value, suffixes[index]);
  return text;
}

}  // namespace

std::string readable_bytes(int64_t bytes) {
  return with_suffix(static_cast<double>(bytes), {"B", "kB", "MB", "GB"});
}

bool Progress::stays(const StepReport& report) const {
  if (report.step == report.steps || report.validation) return true;
  if (o_.log_every > 0) return report.step % o_.log_every == 0;
  return report.step * 10 / report.steps > (report.step - 1) * 10 / report.steps;
}

std::string Progress::line(const StepReport& report, size_t columns) const {
  struct Part {
    std::string text;
    int rank;  // parts with the highest `rank` are omitted first
  };
  std::vector<Part> parts = {{cat("step ", report.step, "/", report.steps), 0},
                             {cat("loss ", fixed(report.result.loss, 4)), 0}};
  if (report.validation) {
    parts.push_back({cat("validation ", fixed(report.validation->loss, 4)), 0});
  }
  if (report.result.skipped) parts.push_back({"(skipped: overflow)", 0});
  const double rate = report.samples_per_second * o_.units_per_sample;
  parts.push_back({cat(fixed(rate, 0), " ", o_.unit, "/s"), 1});
  // The rate is limited to 100%, because the clock may be higher now than during the measurement of
  // the peak.
  const double used = std::min(1.0, report.flops_per_second / o_.peak);
  parts.push_back({cat("MFU ", fixed(100 * used, 0), "%"), 3});
  parts.push_back({cat("waiting ", fixed(100 * report.waiting_share, 0), "%"), 4});
  if (report.step < report.steps) {
    const auto done = static_cast<double>(report.step - first_ + 1);
    const double elapsed = std::chrono::duration<double>(report.elapsed).count();
    const double left = elapsed / done * static_cast<double>(report.steps - report.step);
    parts.push_back({cat(fixed(std::ceil(left), 0), " s left"), 2});
  }
  parts.push_back({cat(readable_bytes(total(report.memory)), " a rank"), 5});
  std::string line;
  for (int most = 5; most >= 0; --most) {
    line.clear();
    for (const Part& part : parts) {
      if (part.rank <= most) line += cat(line.empty() ? "" : "  ", part.text);
    }
    if (line.size() <= columns) break;
  }
  return line;
}

void Progress::show(const StepReport& report) {
  constexpr size_t kColumns = 80;
  if (first_ == 0) first_ = report.step;
  const bool kept = stays(report);
  if (o_.columns == 0) {
    if (kept) std::printf("%s\n", line(report, kColumns).c_str());
  } else if (kept || report.elapsed >= next_) {
    next_ = report.elapsed + std::chrono::milliseconds(200);
    // One column less, because some terminals wrap after their last column.
    const size_t columns = static_cast<size_t>(o_.columns) - 1;
    std::printf("\r%s\033[K%s", line(report, columns).c_str(), kept ? "\n" : "");
  }
  std::fflush(stdout);
}

void print_memory(const MemoryReport& memory, int64_t process_bytes, int rank) {
  std::printf("memory of rank %d ", rank);
  const auto part = [](const char* what, int64_t bytes) {
    if (bytes > 0) std::printf(" %s %s ", what, readable_bytes(bytes).c_str());
  };
  part("parameters", memory.storage.parameters);
  part("gradients", memory.storage.gradients);
  part("masters", memory.storage.masters);
  part("optimizer", memory.optimizer);
  part("gathered buckets", memory.storage.gathered);
  part("padding", memory.storage.padding);
  part("activations", memory.activations);
  part("messages between ranks", memory.boundaries);
  part("compression", memory.compression);
  part("copies to save", memory.copies);
  part("pages of files", memory.pages);
  part("(the whole process, PSS)", process_bytes);
  part("(offloaded to files)", memory.files);
  std::printf("\n");
}

void print_digests(const std::vector<std::string>& digests) {
  std::map<std::string, std::string> ranks;  // key: digest
  for (size_t rank = 0; rank < digests.size(); ++rank) {
    std::string& all = ranks[digests[rank]];
    all += cat(all.empty() ? "" : ", ", rank);
  }
  for (const auto& [digest, those] : ranks) {
    std::printf("digest           %s on ranks %s\n", digest.c_str(), those.c_str());
  }
}

void print_factors(const std::vector<training::FactorTraffic>& layers) {
  if (layers.empty()) return;
  double sent = 0, gradients = 0;
  for (const training::FactorTraffic& layer : layers) {
    sent += layer.factor_bytes;
    gradients += layer.gradient_bytes;
  }
  std::printf("factors          of %zu weight gradients: a rank sends %s a step, not %s\n",
              layers.size(), readable_bytes(static_cast<int64_t>(sent)).c_str(),
              readable_bytes(static_cast<int64_t>(gradients)).c_str());
}

void print_pipeline(const training::PipelineReport& report,
                    const training::PipelineOptions& options, const training::Model& model) {
  if (report.cut.empty()) return;
  const auto unit = [&](int index) { return model.units()[static_cast<size_t>(index)]->name(); };
  std::string chunks;
  for (size_t i = 0; i < report.cut.size(); ++i) {
    const int units = static_cast<int>(model.units().size());
    const int first = report.cut[i];
    const int last = (i + 1 < report.cut.size() ? report.cut[i + 1] : units) - 1;
    chunks += cat(i == 0 ? "" : " | ", unit(first), last == first ? "" : cat(" to ", unit(last)));
  }
  std::string kept;
  for (size_t rank = 0; rank < report.activations.size(); ++rank) {
    kept += cat(rank == 0 ? "" : ", ", report.activations[rank], " (",
                readable_bytes(report.activation_bytes[rank]), ')');
  }
  std::printf("pipeline         %s: %s; micro-batches' activations kept %s\n",
              options.schedule.c_str(), chunks.c_str(), kept.c_str());
}

}  // namespace tutti::tool
