#include "training/setup/surviving_run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/reduce_op.h"
#include "base/text.h"
#include "training/checkpoint/lineage.h"
#include "training/checkpoint/step_directory.h"
#include "training/core/group.h"
#include "training/core/schema.h"
#include "training/run/run_origin.h"
#include "training/setup/settle.h"

namespace tutti::training {
namespace {

// Returns true if this number of ranks can form the mesh, including experts.
bool is_mesh(const MeshShape& shape, int ranks) {
  try {
    mesh_place(shape, ranks);
    return true;
  } catch (const Error&) {
    return false;
  }
}

using Clock = std::chrono::steady_clock;

// Timeout of the barrier at the end of a run, in which spares wait for as long as the run takes.
constexpr std::chrono::hours kForever{24 * 365 * 10};
// Maximum number of consecutive agreements without a loss of ranks and without a new session.
constexpr int kMostVainTries = 3;

// Returns true if the loss of a rank may have caused the error, false if the run itself caused it.
bool may_be_a_death(const Error& error) {
  return error.code() == ErrorCode::rank_died || error.code() == ErrorCode::connection_lost ||
         error.code() == ErrorCode::aborted;
}

class SurvivingRun {
 public:
  SurvivingRun(Communicator world, RunOptions options, LoadedData data,
               const SurvivalOptions& survival, const Conduct& conduct)
      : world_(std::move(world)),
        options_(std::move(options)),
        data_(std::make_shared<const LoadedData>(std::move(data))),
        survival_(survival),
        conduct_(conduct),
        first_size_(world_.size()),
        own_number_(world_.rank()),
        here_(static_cast<size_t>(first_size_), 1),
        size_before_(world_.size()) {
    options_.training.copies = std::make_shared<MemoryCopies>(survival_.copies);
    options_.training.copy_every = survival_.copy_every;
  }

  int run() {
    std::optional<Error> death;
    for (;;) {
      try {
        // more ranks may die during the agreement
        if (death && !continues_after(*death)) return result_.value();
        death.reset();
        result_.reset();
        result_ = session();
        world_.barrier({.timeout = kForever});  // ranks that have finished wait for the others
        return result_.value();
      } catch (const Departure& departure) {
        if (departure.signal() != 0) return 128 + departure.signal();
        death = departure;
      } catch (const Error& error) {
        if (over_ || !may_be_a_death(error)) throw;
        death = error;
      }
    }
  }

 private:
  struct RunShape {
    RunOptions options;
    int ranks = 0;
  };
  RunShape run_shape() const;
  void keep_settled(const RunShape& first);
  void name_writer();
  int session();
  void has_begun();
  bool continues_after(const Error& error);
  Communicator survivors();
  void note_losses();
  void find_state(const Error& error);
  bool continue_from_directory(bool begun);
  bool directory_is_newer();
  void require_progress(const Error& error, const Communicator& left, uint64_t step);
  void require_losses(const Error& error, const Communicator& left);
  [[noreturn]] void end(const Error& error);
  void tell(const Session& session) const;

  Communicator world_;
  RunOptions options_;
  std::shared_ptr<const LoadedData> data_;
  SurvivalOptions survival_;
  const Conduct& conduct_;
  int first_size_;
  int own_number_;              // this process's rank in the first world
  std::vector<uint64_t> here_;  // by rank in the first world: 1 if the rank is alive
  Continuation after_;          // the deaths after which the next session continues the run
  bool over_ = false;           // true if the run cannot continue, even if the error may be a death
  bool settled_ = false;        // true once the first session has settled options_
  bool continues_ = false;
  bool was_spare_ = false;
  bool saved_ = false;         // true once the run has its own checkpoint
  int size_before_ = 0;        // number of ranks in the last session
  int left_before_ = 0;        // number of survivors in the last agreement
  int vain_tries_ = 0;         // consecutive agreements without a loss or a new session
  std::string happened_;       // reason for the end of the last session, for messages
  std::string going_on_;       // ranks that continue, and the step from which they do, for messages
  std::optional<int> result_;  // result of the last session, once it has finished
  uint64_t from_step_ = 0;     // step from which the last session continued; unknown to spares
  std::optional<uint64_t> step_before_;  // step from which the session before the last continued
  Clock::time_point since_;
};

// Returns the shape of the run for the current ranks: with the requested number of stages, or fewer
// if necessary. Unused ranks are spares.
SurvivingRun::RunShape SurvivingRun::run_shape() const {
  const int ranks = survival_.ranks == 0 ? world_.size() : std::min(survival_.ranks, world_.size());
  if (ranks < options_.mesh.of_a_sample()) {
    throw Error(ErrorCode::invalid_argument,
                cat(ranks, " ranks are too few for ", options_.mesh.tensor, " tensor-parallel x ",
                    options_.mesh.context, " context-parallel x ", options_.mesh.spatial.ranks(),
                    " spatially parallel ranks"),
                {.where = "--tp, --cp, --spatial"});
  }
  const auto of_a_stage = static_cast<int>(options_.mesh.of_a_sample());
  for (int stages = std::min(options_.mesh.pipeline, ranks / of_a_stage);; --stages) {
    RunShape run_shape{options_, 0};
    const int data = ranks / (stages * of_a_stage);
    run_shape.options.mesh.pipeline = stages;
    run_shape.options.mesh.data =
        options_.mesh.data == 0 ? data : std::min(options_.mesh.data, data);
    int& left = run_shape.options.mesh.data;
    while (left > 1 && !is_mesh(run_shape.options.mesh, left * stages * of_a_stage)) --left;
    run_shape.ranks = left * stages * of_a_stage;
    // The cut is valid only for the original number of stages.
    if (stages < options_.mesh.pipeline) run_shape.options.training.replica.pipeline.cut.clear();
    try {
      RunOptions tried = run_shape.options;
      settle(tried, run_shape.ranks, data_->examples());
      return run_shape;
    } catch (const Error&) {
      if (stages == 1 || !continues_) throw;
    }
  }
}

// Settles the options on all ranks, spares included. From then on only the set of ranks changes.
void SurvivingRun::keep_settled(const RunShape& first) {
  RunOptions all = first.options;
  settle(all, first.ranks, data_->examples());
  // `configuration` lacks the options that only concern the start of a run. They are added, because
  // the run may have to start again.
  Json configuration = all.training.configuration;
  if (!options_.resume.empty()) set_member(configuration, "checkpoint.resume", options_.resume);
  RunOptions read = parse_run_options({}, configuration);
  read.fingerprint = all.fingerprint;
  read.training.stop_requested = options_.training.stop_requested;
  read.training.copies = options_.training.copies;
  read.training.copy_every = options_.training.copy_every;
  read.training.writers = options_.training.writers;
  read.mesh = options_.mesh;
  read.threads = options_.threads;
  read.training.overwrite = options_.training.overwrite;
  read.training.allow_changed = options_.training.allow_changed;
  options_ = std::move(read);
  settled_ = true;
}

// Collective: all ranks receive from rank 0 the ID of this launch and record the current members.
// If rank 0 dies before any other rank has the ID, nothing has been written, so the rank that
// becomes rank 0 may choose a new ID.
void SurvivingRun::name_writer() {
  if (options_.training.checkpoint.empty()) return;
  std::vector<Writer>& writers = options_.training.writers.writers;
  const std::string start =
      text_of_first(world_, writers.empty() ? new_run_identity() : writers.back().start);
  const Writer writer = writer_of(world_, start);
  if (writers.empty() || writers.back() != writer) writers.push_back(writer);
}

int SurvivingRun::session() {
  name_writer();
  RunShape run_shape = this->run_shape();
  if (!settled_) keep_settled(run_shape);
  std::vector<int> members(static_cast<size_t>(run_shape.ranks));
  std::iota(members.begin(), members.end(), 0);
  was_spare_ = world_.rank() >= run_shape.ranks;
  if (was_spare_) {
    // this rank may have state that others need
    if (options_.training.kept) options_.training.kept->fetch();
    has_begun();
    return 0;  // the caller then waits until the others have finished
  }
  Communicator active = run_shape.ranks == world_.size() ? world_ : world_.create(members);
  Session session(active, run_shape.options, data_);
  options_.training.writers.has_written = true;
  from_step_ = session.trainer().step();
  if (continues_) tell(session);
  const Continuation after = after_;
  has_begun();
  try {
    return conduct_(session, continues_ ? &after : nullptr);
  } catch (...) {
    after_.last_step = session.trainer().step();
    saved_ = saved_ || session.trainer().saves() > 0;
    throw;
  }
}

void SurvivingRun::has_begun() {
  options_.training.kept.reset();
  size_before_ = world_.size();
  after_.lost_ranks.clear();
  happened_.clear();
  vain_tries_ = 0;
}

// shrink() handles deaths itself, so an error that it throws is final.
Communicator SurvivingRun::survivors() {
  try {
    return world_.shrink();
  } catch (const Error& error) {
    end(error);
  }
}

// Returns false if all survivors have already finished.
bool SurvivingRun::continues_after(const Error& error) {
  if (happened_.empty()) since_ = Clock::now();
  world_.abort(cat("the run is interrupted: ", error.what()));  // wakes spares as well
  Communicator left = survivors();
  require_losses(error, left);
  // A spare has no result that shows whether the training ranks have finished. If they have, at
  // least one of them reports it.
  const bool through = result_ && !was_spare_;
  std::array<uint64_t, 3> of_all = {from_step_, through ? 1U : 0U, result_ ? 0U : 1U};
  left.all_reduce(std::span<uint64_t>(of_all), ReduceOp::max);
  const auto [step, anyone_through, unfinished] = of_all;
  if (unfinished == 0 && anyone_through != 0) return false;
  if (left.size() < survival_.min_ranks) {
    end(Error(ErrorCode::rank_died,
              cat(error.what(), "; ", left.size(), " of ", first_size_,
                  " ranks survive, fewer than --min-ranks"),
              {.where = "--min-ranks",
               .remedy = "restart the run, with --resume if it has a checkpoint"}));
  }
  require_progress(error, left, step);
  happened_ += cat(happened_.empty() ? "" : "; ", error.what());
  world_ = std::move(left);
  continues_ = true;
  note_losses();
  find_state(error);
  return true;
}

// Throws if the error recurs at the same step and no rank was lost, because its cause is then not a
// death.
void SurvivingRun::require_progress(const Error& error, const Communicator& left, uint64_t step) {
  if (continues_ && left.size() == world_.size() && step_before_ == step) end(error);
  step_before_ = step;
}

// Throws if agreements repeatedly find no losses, because survivors may then fail in their first
// common call each time.
void SurvivingRun::require_losses(const Error& error, const Communicator& left) {
  vain_tries_ = left.size() == left_before_ ? vain_tries_ + 1 : 0;
  left_before_ = left.size();
  if (vain_tries_ > kMostVainTries) end(error);
}

void SurvivingRun::end(const Error& error) {
  over_ = true;
  throw error;
}

// Records losses on all ranks, because spares lack the last step of the others.
void SurvivingRun::note_losses() {
  std::vector<uint64_t> present(here_.size() + 1);
  present[static_cast<size_t>(own_number_)] = 1;
  present.back() = after_.last_step;
  world_.all_reduce(std::span<uint64_t>(present), ReduceOp::max);
  after_.last_step = present.back();
  present.pop_back();
  for (int rank = 0; rank < first_size_; ++rank) {
    const auto index = static_cast<size_t>(rank);
    if (here_[index] > present[index]) after_.lost_ranks.push_back(rank);
  }
  std::ranges::sort(after_.lost_ranks);
  here_ = std::move(present);
}

void SurvivingRun::find_state(const Error& error) {
  TrainOptions& training = options_.training;
  const MemoryCopies::Found found = training.copies->find(world_, was_spare_);
  going_on_ = cat(world_.size(), " of ", size_before_, " ranks continue");
  training.kept = found.state;
  const bool has_steps = continue_from_directory(found.begun);
  // The run must not continue from a state before a published step.
  if (training.kept && has_steps && directory_is_newer()) training.kept.reset();
  if (training.kept) {
    going_on_ +=
        cat(" from the state after step ", training.kept->step(), ", which is in their memory");
  } else if (has_steps) {
    going_on_ += " from the last checkpoint";
  } else if (!found.begun) {
    going_on_ += " from the start of the run, since no step was completed";
  } else {
    end(Error(ErrorCode::rank_died,
              cat(error.what(), "; part of the state was only in the memory of dead ranks"),
              {.cause = "a rank and all holders of copies of its state died at the same time",
               .remedy = "use --checkpoint, to continue from disk"}));
  }
}

// Decides how the next session uses the checkpoint directory. Returns true if the directory has a
// step of this run.
bool SurvivingRun::continue_from_directory(bool begun) {
  TrainOptions& training = options_.training;
  if (training.checkpoint.empty()) return false;
  bool& has_written = training.writers.has_written;
  std::array<int32_t, 3> seen = {saved_ ? 1 : 0, 0, has_written ? 1 : 0};
  if (world_.rank() == 0) seen[1] = steps_in(training.checkpoint).empty() ? 0 : 1;
  world_.all_reduce(std::span<int32_t>(seen), ReduceOp::max);
  saved_ = seen[0] == 1;
  has_written = seen[2] == 1;
  // No other job can have started a run in this directory, so an existing step belongs to this run,
  // unless it is to be overwritten.
  if (seen[1] == 0 || (training.overwrite && !saved_)) return false;
  // A run that has not begun starts at the requested step, which is perhaps older than the newest
  // step.
  if (begun || options_.resume.empty()) options_.resume = kNewestStepOrNone;
  training.overwrite = false;
  return true;
}

// Collective. Returns true if the newest complete step in the checkpoint directory is later than
// the state in memory.
bool SurvivingRun::directory_is_newer() {
  const TrainOptions& training = options_.training;
  std::array<int32_t, 1> newer = {0};
  if (world_.rank() == 0) {
    try {
      const std::vector<int64_t> steps = steps_in(training.checkpoint);
      const int64_t kept = training.kept->step();
      if (!steps.empty() && steps.back() > kept) {
        const ChosenStep newest = choose_step(training.checkpoint, std::nullopt);
        newer[0] = newest.checkpoint.manifest().step > kept ? 1 : 0;
      }
      // not rethrown, because the other ranks wait in the all-reduce, and the state in memory is
      // valid
    } catch (const Error& error) {
      log(LogLevel::warning,
          cat("continuing from memory, since no newer checkpoint can be read: ", error.what()));
    }
  }
  world_.all_reduce(std::span<int32_t>(newer), ReduceOp::max);
  return newer[0] == 1;
}

void SurvivingRun::tell(const Session& session) const {
  if (world_.rank() != 0) return;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f",
                std::chrono::duration<double>(Clock::now() - since_).count());
  const int spares = world_.size() - session.world().size();
  log(LogLevel::warning,
      cat(happened_, ". ", going_on_, spares > 0 ? cat(", ", spares, " of them as spares") : "",
          ". Step ", from_step_ + 1, " is next, with ", session.options().training.batch,
          " samples as before; none is lost or repeated. Recovery took ", seconds, " s."));
}

}  // namespace

int run_with_survivors(Communicator world, RunOptions options, LoadedData data,
                       const SurvivalOptions& survival, const Conduct& conduct) {
  return SurvivingRun(std::move(world), std::move(options), std::move(data), survival, conduct)
      .run();
}

}  // namespace tutti::training
