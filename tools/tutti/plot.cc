// tutti plot: compares the losses of several training runs.
#include "tools/tutti/train/plot.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_text.h"
#include "base/json.h"
#include "base/text.h"
#include "tools/tutti/commands.h"

namespace tutti::tool {
namespace {

struct PlotOptions {
  std::vector<std::string> runs;
  std::string out;
  std::string title = "training losses";
  std::string over = "steps";
};

bool is_json(std::string_view text) {
  try {
    Json::parse(text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

Json parse_line(const std::string& path, int number, const std::string& line) {
  std::string problem = " is not a JSON object";
  try {
    const Json object = Json::parse(line);
    if (object.is_object()) {
      const Json* step = object.find("step");
      if (step == nullptr || step->is_natural_number()) return object;
      problem = " has an invalid step";
    }
  } catch (const Error& error) {
    problem += cat(" (", error.what(), ")");
  }
  throw Error(ErrorCode::invalid_argument, cat("line ", number, problem),
              {.where = path,
               .cause = "the file is damaged or was not written by `tutti train --json`",
               .remedy = "remove the file from the command, or the line from the file"});
}

// Reads the lines of the steps, and an optional summary with the final validation, which has no
// step. If a resumed run repeated steps, their later lines replace the earlier ones.
LossCurves read_run(const std::string& path) {
  LossCurves run{.name = std::filesystem::path(path).stem().string()};
  std::string text = file_text(path, FileKind::losses);
  // The last line of a running or killed run may be incomplete.
  const size_t whole = text.rfind('\n') + 1;
  if (whole > 0 && !is_json(std::string_view(text).substr(whole))) text.resize(whole);
  std::istringstream lines(std::move(text));
  uint64_t step = 0;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json object = parse_line(path, ++number, line);
    const auto take = [&](const char* key, auto& points) {
      // A loss that is not finite is written as null.
      const Json* found = object.find(key);
      if (found != nullptr && found->is_number()) points.emplace_back(step, *found);
    };
    if (object.contains("step")) {
      step = object["step"];
      for (auto* points : {&run.training, &run.validation}) {
        while (!points->empty() && points->back().first >= step) points->pop_back();
      }
    }
    const Json* const elapsed = object.find("elapsed_s");
    if (elapsed != nullptr && elapsed->is_number()) run.elapsed[step] = *elapsed;
    take("loss", run.training);
    take("validation_loss", run.validation);
  }
  if (!run.training.empty() || !run.validation.empty()) return run;
  throw Error(ErrorCode::invalid_argument, "the file contains no losses",
              {.where = path, .remedy = "use files written by `tutti train --json`"});
}

std::string number(const std::vector<std::pair<uint64_t, double>>& points) {
  if (points.empty()) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", points.back().second);
  return text;
}

std::string seconds_at(const LossCurves& run, uint64_t step) {
  const auto found = run.elapsed.find(step);
  if (found == run.elapsed.end()) return "          -";
  char text[32];
  std::snprintf(text, sizeof(text), " %10.1f", found->second);
  return text;
}

int plot(const PlotOptions& options) {
  const Picture picture(options.out, "--out");
  std::vector<LossCurves> runs;
  for (const std::string& path : options.runs) runs.push_back(read_run(path));
  const LossesOver over = options.over == "time" ? LossesOver::time : LossesOver::steps;
  const bool tells_time = over == LossesOver::time;
  std::printf("%-24s %8s %10s %12s%s\n", "run", "steps", "training", "validation",
              tells_time ? "    seconds" : "");
  for (const LossCurves& run : runs) {
    const uint64_t steps = run.training.empty() ? 0 : run.training.back().first;
    std::printf("%-24s %8llu %10s %12s%s\n", run.name.c_str(),
                static_cast<unsigned long long>(steps), number(run.training).c_str(),
                number(run.validation).c_str(), tells_time ? seconds_at(run, steps).c_str() : "");
  }
  if (picture.wanted()) plot_losses(picture, options.title, runs, over);
  return 0;
}

}  // namespace

void add_plot(CommandLine& line) {
  const auto options = std::make_shared<PlotOptions>();
  Command command = line.add("plot", "compare the losses of training runs in a table and a plot");
  command.add_option("runs", options->runs, "files written by `tutti train --json`, one per run")
      .type_name("FILE.jsonl")
      .required();
  command.add_option("--out", options->out, "plot the losses into this file").type_name("FILE.svg");
  command.add_option("--title", options->title, "title of the plot").show_default();
  command.add_option("--over", options->over, "quantity on the x axis: steps or time")
      .one_of({"steps", "time"})
      .show_default();
  command.footer(
      "Runs are named after their files. Validation losses are thick lines with points.\n"
      "Example:\n"
      "  tutti plot 1f1b.jsonl pipedream.jsonl --out losses.svg");
  command.runs([options] { return plot(*options); });
}

}  // namespace tutti::tool
