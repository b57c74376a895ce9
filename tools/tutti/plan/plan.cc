// tutti plan: how to lay a model's training out on a cluster, and what it will take.
#include <memory>

#include "tools/tutti/commands.h"
#include "tools/tutti/plan/faces.h"

namespace tutti::tool {

void add_plan(CommandLine& line) {
  const auto o = std::make_shared<PlanOptions>();
  Command command = line.add("plan", "how to lay a model's training out, and what it will take");
  command.add_option("--predict", o->predict, "predict the runs of this table").type_name("CSV");
  command.add_option("--fit", o->fit, "fit efficiencies to the runs of this table")
      .type_name("CSV");
  command.add_option("--efficiencies", o->efficiencies, "a file that --fit wrote")
      .type_name("FILE");
  command.add_option("--json", o->json, "write the results to this file").type_name("FILE");
  command.runs([o] {
    if (!o->fit.empty()) return fit_runs(*o);
    return predict_runs(*o);
  });
}

}  // namespace tutti::tool
