// The table of launchers and the job variables that each sets; they are tried in order. The readers
// are pure functions of an environment, so that tests can cover any launcher.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// Function that returns a variable's value; nullopt if it is unset or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
// Reads this process's environment.
std::optional<std::string> own_environment(const std::string& name);

// A store for small values shared by all ranks of a job.
enum class JobStore { none, pmix, pmi };

struct FoundJob {
  std::string source;  // name in the table
  int rank = 0;
  int size = 0;  // 0: the size must be read from PMIx
  std::optional<int> local_rank;
  std::optional<int> local_size;
  // Rank 0's address, if the source provides it; otherwise ranks meet in the store, if any.
  std::string address;
  uint16_t port = 0;
  JobStore store = JobStore::none;
  // Identifies this start of the job; empty unless the launcher restarts ranks at one address.
  std::string incarnation;
  // True if rank and size come from RANK and WORLD_SIZE. Then `address` is empty, so MASTER_ADDR
  // and MASTER_PORT, or TUTTI_RENDEZVOUS, must be set as well.
  bool explicit_ranks = false;
};

struct JobSource {
  std::string_view name;
  std::string_view recognised_by;  // for people: variables that the source sets
  std::string_view meets_at;       // for people: the place where the ranks meet
  // Returns nullopt if this source did not start the process. Throws Error(bootstrap) that names
  // the missing or invalid variable.
  std::optional<FoundJob> (*read)(const Environment& environment);
};

std::span<const JobSource> job_sources();

// Returns the job of the first source in the table that started this process; nullopt if there is
// none. Throws Error(bootstrap).
std::optional<FoundJob> find_job(const Environment& environment);

// Parses a variable's value, a whole number from `least` to `most`. Throws Error(bootstrap) that
// names the variable.
int job_number(const std::string& variable, const std::string& text, int least, int most);

// Returns the remedy for invalid job variables: "start the program with `tutti run ...`".
std::string_view how_to_start();

}  // namespace tutti
