// PMIx, offered by Open MPI's mpirun, prterun, `srun --mpi=pmix` and jsrun. Its library is loaded
// at run time, if a job needs it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "transport/bootstrap/discovery/rendezvous.h"

namespace tutti::bootstrap {

// A rendezvous in which rank 0 sets values and the others get them. This process is a PMIx client
// from the first object until the process exits. Keys contain the number of objects constructed so
// far, so all ranks must construct this class equally often.
class PmixRendezvous final : public Rendezvous {
 public:
  // Connects to the PMIx server. Throws Error(bootstrap) that names what is missing.
  PmixRendezvous();

  int job_size() const;

  std::string name() const override { return "the launcher's PMIx"; }
  void set(const std::string& key, const std::string& value) override;
  // Does nothing: PMIx cannot remove keys, and later objects use other keys.
  void remove(const std::string&) override {}
  std::optional<std::string> get(const std::string& key) override;

 private:
  struct Answer;
  std::string unique(const std::string& key) const;

  std::string namespace_;
  int generation_;
  std::map<std::string, std::shared_ptr<Answer>> asked_;
};

}  // namespace tutti::bootstrap
