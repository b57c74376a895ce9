// PMI-1, which MPICH's launcher (Hydra) and those made from it speak with the processes they start,
// as does `srun --mpi=pmi2`: lines of text over the socket PMI_FD.
#pragma once

#include <optional>
#include <string>

#include "transport/bootstrap/discovery/rendezvous.h"

namespace tutti::bootstrap {

// What one rank has set the others see after a barrier of all ranks. So all ranks must make one of
// these equally often, rank 0 sets one value, and the others ask for it.
class PmiRendezvous final : public Rendezvous {
 public:
  // Speaks to the launcher. Throws Error(bootstrap) where it does not answer.
  PmiRendezvous();
  std::string name() const override { return "the launcher's PMI"; }
  void set(const std::string& key, const std::string& value) override;
  // PMI cannot; a later one has other keys.
  void remove(const std::string& key) override;
  std::optional<std::string> get(const std::string& key) override;

 private:
  std::string unique(const std::string& key) const;

  int generation_;
  bool in_barrier_ = false;
};

}  // namespace tutti::bootstrap
