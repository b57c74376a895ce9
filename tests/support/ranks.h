// Ranks as threads of one test process (so that the thread sanitizer sees their races).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "transport/bootstrap/discovery/job.h"

namespace tutti::testing {

// Where the ranks of one job meet: a listening socket on a free loopback port, which rank 0 adopts,
// and a random token.
class LocalRendezvous {
 public:
  explicit LocalRendezvous(const std::string& address = "127.0.0.1");  // or "::1"

  uint16_t port() const { return port_; }
  const std::string& token() const { return token_; }
  // The descriptor is handed over to the Control that rank 0's job makes.
  int release_listener() { return listener_.release(); }

  // Rank 0's job carries the listener: ask for it once. Change its fields at will.
  Job job(int rank, int size);

 private:
  std::string address_;
  Fd listener_;
  uint16_t port_ = 0;
  std::string token_;
};

// A job on a loopback port that is known already; rank 0 binds it.
Job local_job(int rank, int size, uint16_t port, const std::string& token);
// A job that meets through a shared file.
Job local_job(int rank, int size, const std::string& rendezvous_file, const std::string& token);

// Runs body(job) once per rank, each in a thread of its own with a fresh rendezvous, and joins all.
// When ranks throw, the exception of the first one to do so is rethrown as Error("rank R: ..."),
// with the code of a tutti::Error kept.
void run_ranks(int size, const std::function<void(const Job&)>& body);

// The same for tests of failures: what each rank threw, nullopt where it returned.
std::vector<std::optional<Error>> run_ranks_catching(int size,
                                                     const std::function<void(const Job&)>& body);

// The same with jobs of the caller's making, one thread per job.
std::vector<std::optional<Error>> run_jobs_catching(const std::vector<Job>& jobs,
                                                    const std::function<void(const Job&)>& body);

}  // namespace tutti::testing
