// What starts processes, and what each tells them of their job: one table, tried in order. Pure
// functions of an environment, so that anybody's can be tried on any machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// The value of a variable; nothing where it is not set or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
// This process's own.
std::optional<std::string> own_environment(const std::string& name);

// Where small values of a job can be put down for all of its ranks.
enum class JobStore { none, pmix, pmi };

struct FoundJob {
  std::string source;  // its name in the table
  int rank = 0;
  int size = 0;  // 0: only PMIx knows
  std::optional<int> local_rank;
  std::optional<int> local_size;
  // Rank 0's, where the source tells that much; else ranks meet in the store, if there is one.
  std::string address;
  uint16_t port = 0;
  JobStore store = JobStore::none;
  // Which start of which job this is, where launchers start ranks anew at one address and say so.
  std::string incarnation;
  // The user's own words (RANK and WORLD_SIZE): MASTER_ADDR and MASTER_PORT must be there as well.
  bool explicit_ranks = false;
};

struct JobSource {
  std::string_view name;
  std::string_view recognised_by;  // for people
  std::string_view meets_at;       // for people
  // Nothing where it did not start this process. Throws Error(bootstrap) that names the variable
  // which is missing or makes no sense.
  std::optional<FoundJob> (*read)(const Environment& environment);
};

std::span<const JobSource> job_sources();

// What the first source in the table tells that has started this process; nothing where none has.
// Throws Error(bootstrap).
std::optional<FoundJob> find_job(const Environment& environment);

// A whole number that is in a variable. Throws Error(bootstrap) naming it.
int job_number(const std::string& variable, const std::string& text, int least, int most);

// "start the program with `tutti run ...`": the remedy where a job's variables make no sense.
std::string_view how_to_start();

}  // namespace tutti
