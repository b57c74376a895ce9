// Runs ranks as threads of one test process (so that the thread sanitizer sees their races).
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

// Rendezvous of one job's ranks: a listening socket on a free loopback port, which rank 0 adopts,
// and a random token.
class LocalRendezvous {
 public:
  explicit LocalRendezvous(const std::string& address = "127.0.0.1");  // or "::1"

  uint16_t port() const { return port_; }
  const std::string& token() const { return token_; }
  // Transfers the descriptor to rank 0's Control.
  int release_listener() { return listener_.release(); }

  // Returns a rank's job, whose fields may be changed. The job of rank 0 takes the listener, so
  // call job(0, size) only once.
  Job job(int rank, int size);

 private:
  std::string address_;
  Fd listener_;
  uint16_t port_ = 0;
  std::string token_;
};

// A job on a known loopback port, which rank 0 binds.
Job local_job(int rank, int size, uint16_t port, const std::string& token);
// A job with a file as rendezvous.
Job local_job(int rank, int size, const std::string& rendezvous_file, const std::string& token);

// Runs body(job) once per rank, each in its own thread with a new rendezvous, and joins all
// threads. If ranks throw, rethrows the first exception as Error("rank R: ..."), with the code of a
// tutti::Error preserved.
void run_ranks(int size, const std::function<void(const Job&)>& body);

// Runs ranks as run_ranks() does, but returns each rank's exception; nullopt if the rank returned
// normally.
std::vector<std::optional<Error>> run_ranks_catching(int size,
                                                     const std::function<void(const Job&)>& body);

// Runs ranks as run_ranks_catching() does, but with the caller's jobs, one thread per job.
std::vector<std::optional<Error>> run_jobs_catching(const std::vector<Job>& jobs,
                                                    const std::function<void(const Job&)>& body);

}  // namespace tutti::testing
