// PMIx, which mpirun of Open MPI, prterun, `srun --mpi=pmix` and jsrun offer to the processes they
// start. Its library is loaded at run time, where a job needs it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "transport/bootstrap/discovery/rendezvous.h"

namespace tutti::bootstrap {

// Rank 0 sets, the others get. While one lives this process is a client of PMIx. All ranks must
// make one equally often.
class PmixRendezvous final : public Rendezvous {
 public:
  // Throws Error(bootstrap) that says what is missing.
  PmixRendezvous();

  int job_size() const;

  std::string name() const override { return "the launcher's PMIx"; }
  void set(const std::string& key, const std::string& value) override;
  void remove(const std::string&) override {}  // PMIx cannot; a later one has other keys
  std::optional<std::string> get(const std::string& key) override;

 private:
  struct Answer;
  std::string unique(const std::string& key) const;

  std::string namespace_;
  int generation_;
  std::map<std::string, std::shared_ptr<Answer>> asked_;
};

}  // namespace tutti::bootstrap
