#include "tests/support/ranks.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <exception>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/random_token.h"
#include "base/text.h"

namespace tutti::testing {

namespace {

constexpr std::chrono::seconds kInitTimeout{30};

Job plain_job(int rank, int size, const std::string& token) {
  Job job;
  job.rank = rank;
  job.size = size;
  job.token = token;
  job.init_timeout = kInitTimeout;
  return job;
}

// Each rank's error, and the rank that failed first (-1: none).
struct Outcome {
  std::vector<std::optional<Error>> errors;
  int first = -1;
};

Outcome run(const std::vector<Job>& jobs, const std::function<void(const Job&)>& body) {
  Outcome outcome;
  outcome.errors.resize(jobs.size());
  std::mutex mutex;
  const auto fail = [&](size_t i, const Error& error) {
    std::lock_guard lock(mutex);
    outcome.errors[i] = error;
    if (outcome.first < 0) outcome.first = static_cast<int>(i);
  };
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < jobs.size(); ++i) {
    threads.emplace_back([&, i] {
      set_log_rank(jobs[i].rank);
      try {
        body(jobs[i]);
      } catch (const Error& error) {
        fail(i, error);
      } catch (const std::exception& error) {
        fail(i, Error(ErrorCode::internal, error.what()));
      }
    });
  }
  threads.clear();  // joins the threads
  return outcome;
}

std::vector<Job> fresh_jobs(int size) {
  LocalRendezvous rendezvous;
  std::vector<Job> jobs;
  for (int rank = 0; rank < size; ++rank) jobs.push_back(rendezvous.job(rank, size));
  return jobs;
}

}  // namespace

LocalRendezvous::LocalRendezvous(const std::string& address)
    : address_(address), token_(random_token()) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int status = ::getaddrinfo(address.c_str(), "0", &hints, &found); status != 0) {
    throw Error(ErrorCode::system, cat("getaddrinfo ", address, ": ", ::gai_strerror(status)));
  }
  listener_ = Fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool listening = listener_ &&
                         ::bind(listener_.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                         ::listen(listener_.get(), 128) == 0;
  const int error = errno;
  ::freeaddrinfo(found);
  if (!listening) throw system_error(cat("listen on ", address), error);

  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  char port[NI_MAXSERV];
  if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&bound), length, nullptr, 0, port, sizeof(port),
                    NI_NUMERICSERV) != 0) {
    throw system_error("getsockname", errno);
  }
  port_ = static_cast<uint16_t>(std::stoi(port));
}

Job LocalRendezvous::job(int rank, int size) {
  Job job = plain_job(rank, size, token_);
  job.master_address = address_;
  job.master_port = port_;
  // A single rank has no peers, so it does not listen.
  if (rank == 0 && size > 1) job.listen_fd = release_listener();
  return job;
}

Job local_job(int rank, int size, uint16_t port, const std::string& token) {
  Job job = plain_job(rank, size, token);
  job.master_address = "127.0.0.1";
  job.master_port = port;
  return job;
}

Job local_job(int rank, int size, const std::string& rendezvous_file, const std::string& token) {
  Job job = plain_job(rank, size, token);
  job.rendezvous_file = rendezvous_file;
  return job;
}

void run_ranks(int size, const std::function<void(const Job&)>& body) {
  const Outcome outcome = run(fresh_jobs(size), body);
  if (outcome.first < 0) return;
  const Error& error = *outcome.errors[outcome.first];
  throw Error(error.code(), cat("rank ", outcome.first, ": ", error.what()));
}

std::vector<std::optional<Error>> run_ranks_catching(int size,
                                                     const std::function<void(const Job&)>& body) {
  return run(fresh_jobs(size), body).errors;
}

std::vector<std::optional<Error>> run_jobs_catching(const std::vector<Job>& jobs,
                                                    const std::function<void(const Job&)>& body) {
  return run(jobs, body).errors;
}

}  // namespace tutti::testing
