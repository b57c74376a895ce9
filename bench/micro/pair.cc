#include "bench/micro/pair.h"

#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/text.h"
#include "transport/bootstrap/discovery/job.h"

namespace tutti::bench {

std::array<Communicator, 2> make_pair_of_ranks() {
  const std::string file =
      (std::filesystem::temp_directory_path() / cat("tutti-pair-", ::getpid())).string();
  std::array<Communicator, 2> pair;
  const auto join = [&](int rank) {
    Job job;
    job.rank = rank;
    job.size = 2;
    job.rendezvous_file = file;
    job.token = "pair";
    pair[static_cast<size_t>(rank)] = Communicator::init(job);
  };
  std::thread other(join, 1);
  join(0);
  other.join();
  std::filesystem::remove(file);
  return pair;
}

}  // namespace tutti::bench
