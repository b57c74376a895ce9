#include "transport/bootstrap/discovery/job_sources.h"

#include <array>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "topology/host_list.h"

namespace tutti {

namespace {

constexpr int kMostRanks = 1 << 24;

std::string require_setting(const Environment& environment, const std::string& name,
                            const std::string& given) {
  if (auto value = environment(name)) return *value;
  throw Error(ErrorCode::bootstrap, cat(given, " is set, but ", name, " is not"),
              {.remedy = std::string(how_to_start())});
}

std::optional<int> optional_number(const Environment& environment, const char* name) {
  const auto text = name != nullptr ? environment(name) : std::nullopt;
  if (!text) return std::nullopt;
  return job_number(name, *text, 0, kMostRanks);
}

// The variables of a source for rank, size, local rank and local size; the last two may be missing.
struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

FoundJob read_numbers(const Environment& environment, const Names& names) {
  FoundJob found;
  found.size =
      job_number(names.size, require_setting(environment, names.size, names.rank), 1, kMostRanks);
  found.rank = job_number(names.rank, require_setting(environment, names.rank, names.size), 0,
                          found.size - 1);
  found.local_rank = optional_number(environment, names.local_rank);
  found.local_size = optional_number(environment, names.local_size);
  return found;
}

// Reads torch's names, which many launchers use: `tutti run`, torchrun, Kubeflow's PyTorchJob,
// scripts.
FoundJob read_variables(const Environment& environment) {
  FoundJob found =
      read_numbers(environment, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  found.explicit_ranks = true;
  return found;
}

std::optional<FoundJob> read_tutti_run(const Environment& environment) {
  if (!environment("RANK") || !environment("TUTTI_LAUNCHER_FD")) return std::nullopt;
  return read_variables(environment);
}

std::optional<FoundJob> read_torchrun(const Environment& environment) {
  if (!environment("RANK")) return std::nullopt;
  if (!environment("TORCHELASTIC_RUN_ID") && !environment("TORCHELASTIC_USE_AGENT_STORE")) {
    return std::nullopt;
  }
  FoundJob found = read_variables(environment);
  // The agent's port distinguishes jobs of one host, whose run ids are often "none".
  found.incarnation = cat("torchrun ", environment("TORCHELASTIC_RUN_ID").value_or(""), " at port ",
                          environment("MASTER_PORT").value_or("?"));
  // Each agent counts the restarts that its own ranks caused, so agents of several nodes may have
  // different counts for one start. The count identifies the start only if there is a single agent.
  if (environment("GROUP_WORLD_SIZE") == "1") {
    found.incarnation += cat(" ", environment("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  }
  return found;
}

std::optional<FoundJob> read_by_hand(const Environment& environment) {
  if (!environment("RANK")) return std::nullopt;
  return read_variables(environment);
}

std::optional<FoundJob> read_open_mpi(const Environment& environment) {
  if (!environment("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  FoundJob found =
      read_numbers(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                 "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  if (environment("PMIX_NAMESPACE")) found.store = JobStore::pmix;
  return found;
}

std::optional<FoundJob> read_pmix(const Environment& environment) {
  const auto rank = environment("PMIX_RANK");
  if (!rank || !environment("PMIX_NAMESPACE")) return std::nullopt;
  FoundJob found;
  found.rank = job_number("PMIX_RANK", *rank, 0, kMostRanks);
  found.store = JobStore::pmix;
  // Slurm and jsrun set the remaining variables, which saves a query. prterun starts its daemons by
  // srun, so its ranks inherit Slurm's variables, which are not theirs.
  const bool of_slurm = environment("PMIX_NAMESPACE")->starts_with("slurm.pmix.");
  if (of_slurm) found.local_rank = optional_number(environment, "SLURM_LOCALID");
  const char* const name = of_slurm ? "SLURM_STEP_NUM_TASKS" : "JSM_NAMESPACE_SIZE";
  const auto size = environment(name);
  if (size) found.size = job_number(name, *size, found.rank + 1, kMostRanks);
  return found;
}

// Reads the variables of Hydra, MPICH's launcher, of its derivatives (Intel MPI), and of `srun
// --mpi=pmi2`.
std::optional<FoundJob> read_pmi(const Environment& environment) {
  if (!environment("PMI_RANK") || !environment("PMI_FD")) return std::nullopt;
  FoundJob found =
      read_numbers(environment, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  found.store = JobStore::pmi;
  return found;
}

// First port. Consecutive jobs and steps get different ports, below Linux's ephemeral range (32768
// to 60999) and above well-known services.
constexpr int kFirstPort = 15000;
constexpr int kPorts = 16384;

uint16_t port_of(uint64_t job, uint64_t step) {
  return static_cast<uint16_t>(kFirstPort + (job + 4099 * step) % kPorts);
}

// Reads this node's entry of SLURM_STEP_TASKS_PER_NODE (such as "2(x3),1").
std::optional<int> slurm_local_size(const Environment& environment) {
  const auto counts = environment("SLURM_STEP_TASKS_PER_NODE");
  const auto node = optional_number(environment, "SLURM_NODEID");
  if (!counts || !node) return std::nullopt;
  const std::vector<int> tasks = expand_counts(*counts);
  if (static_cast<size_t>(*node) >= tasks.size()) return std::nullopt;
  return tasks[static_cast<size_t>(*node)];
}

// Throws if variables of the step are missing. A container, for example, may pass only some of
// them; then each task of the step would be a job of its own. Does not throw for task 0, because
// Slurm sets task number 0 for a batch script as well.
void require_whole_step(const Environment& environment) {
  const std::optional<int> task = optional_number(environment, "SLURM_PROCID");
  if (task.value_or(0) == 0) return;
  throw Error(
      ErrorCode::bootstrap,
      cat("SLURM_PROCID=", *task, " implies a step of several tasks, but ",
          environment("SLURM_STEP_ID") ? "SLURM_STEP_NUM_TASKS" : "SLURM_STEP_ID", " is not set"),
      {.cause = "a layer between srun and this program drops some of Slurm's variables",
       .remedy = "pass all SLURM_ variables on, or set RANK, WORLD_SIZE, MASTER_ADDR "
                 "and MASTER_PORT"});
}

// Reads Slurm's variables. A batch script is not a step, although Slurm gives it a rank: the
// launcher inside it defines the ranks.
std::optional<FoundJob> read_slurm(const Environment& environment) {
  const auto step = environment("SLURM_STEP_ID");
  if (!step || !environment("SLURM_PROCID") || !environment("SLURM_STEP_NUM_TASKS")) {
    require_whole_step(environment);
    return std::nullopt;
  }
  // If the step has several components (a heterogeneous job), these variables count all of them.
  FoundJob found =
      read_numbers(environment, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr});
  // A step of one rank needs no address. salloc's shell is such a step, and its step id exceeds
  // kMost.
  if (found.size == 1) return found;
  found.local_size = slurm_local_size(environment);
  const std::string nodes = require_setting(environment, "SLURM_STEP_NODELIST", "SLURM_STEP_ID");
  found.address = expand_host_list(nodes).front();
  constexpr int kMost = 0x7fffffff;
  found.port = port_of(
      static_cast<uint64_t>(job_number(
          "SLURM_JOB_ID", require_setting(environment, "SLURM_JOB_ID", "SLURM_STEP_ID"), 0, kMost)),
      static_cast<uint64_t>(job_number("SLURM_STEP_ID", *step, 0, kMost)));
  return found;
}

// Reads the variables of LSF's own task launcher, if it offers no PMIx.
std::optional<FoundJob> read_jsrun(const Environment& environment) {
  if (!environment("JSM_NAMESPACE_RANK")) return std::nullopt;
  return read_numbers(environment, {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
                                    "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"});
}

// Reads the variables of a pod of an indexed Job. Kubernetes provides the pod's index. The manifest
// must provide the number of pods (WORLD_SIZE); if it does not, each pod is a job of its own.
std::optional<FoundJob> read_kubernetes(const Environment& environment) {
  if (!environment("JOB_COMPLETION_INDEX") || !environment("WORLD_SIZE")) return std::nullopt;
  return read_numbers(environment,
                      {"JOB_COMPLETION_INDEX", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
}

constexpr std::array kSources = {
    JobSource{"tutti run", "RANK, TUTTI_LAUNCHER_FD", "MASTER_ADDR, MASTER_PORT", read_tutti_run},
    JobSource{"torchrun", "RANK, TORCHELASTIC_RUN_ID",
              "MASTER_ADDR, one of the 8 ports after MASTER_PORT", read_torchrun},
    JobSource{"variables", "RANK, WORLD_SIZE", "MASTER_ADDR, MASTER_PORT or TUTTI_RENDEZVOUS",
              read_by_hand},
    JobSource{"Open MPI", "OMPI_COMM_WORLD_RANK", "PMIx", read_open_mpi},
    JobSource{"PMIx", "PMIX_RANK, PMIX_NAMESPACE", "PMIx", read_pmix},
    JobSource{"PMI", "PMI_RANK, PMI_FD", "PMI-1", read_pmi},
    JobSource{"Slurm", "SLURM_PROCID, SLURM_STEP_ID",
              "the step's first host, a port made of job and step", read_slurm},
    JobSource{"jsrun", "JSM_NAMESPACE_RANK", "MASTER_ADDR, MASTER_PORT", read_jsrun},
    JobSource{"Kubernetes", "JOB_COMPLETION_INDEX, WORLD_SIZE", "MASTER_ADDR, MASTER_PORT",
              read_kubernetes},
};

// Throws if the user and the launcher give different sizes.
void check_world_size(const FoundJob& found, const Environment& environment) {
  const auto text = environment("WORLD_SIZE");
  if (found.explicit_ranks || !text || found.size == 0) return;
  const int size = job_number("WORLD_SIZE", *text, 1, kMostRanks);
  if (size == found.size) return;
  throw Error(
      ErrorCode::bootstrap,
      cat("WORLD_SIZE is ", size, ", but ", found.source, " started ", found.size, " ranks"),
      {.cause = "WORLD_SIZE is set without RANK, so the rank comes from " + found.source,
       .remedy = "unset WORLD_SIZE, or set RANK as well"});
}

}  // namespace

std::optional<std::string> own_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::span<const JobSource> job_sources() { return kSources; }

std::optional<FoundJob> find_job(const Environment& environment) {
  for (const JobSource& source : kSources) {
    std::optional<FoundJob> found = source.read(environment);
    if (!found) continue;
    found->source = source.name;
    check_world_size(*found, environment);
    return found;
  }
  if (environment("WORLD_SIZE")) require_setting(environment, "RANK", "WORLD_SIZE");
  return std::nullopt;
}

int job_number(const std::string& variable, const std::string& text, int least, int most) {
  const auto value = parse_number<int>(text);
  if (!value || *value < least || *value > most) {
    throw Error(ErrorCode::bootstrap,
                cat(variable, "='", text, "' is not a whole number from ", least, " to ", most),
                {.remedy = std::string(how_to_start())});
  }
  return *value;
}

std::string_view how_to_start() {
  return "start the program with `tutti run -n N -- PROGRAM`, srun, mpirun or torchrun, or set "
         "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (or TUTTI_RENDEZVOUS=file:/PATH)";
}

}  // namespace tutti
