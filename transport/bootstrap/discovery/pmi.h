// PMI-1, the protocol of MPICH's launcher (Hydra), of the launchers derived from Hydra, and of
// `srun --mpi=pmi2`. It consists of lines of text over the socket PMI_FD.
#pragma once

#include <optional>
#include <string>

#include "transport/bootstrap/discovery/rendezvous.h"

namespace tutti::bootstrap {

// A rendezvous in which rank 0 sets one value and the others get it, which becomes visible after a
// barrier of all ranks. Keys contain the number of objects constructed so far, so all ranks must
// construct this class equally often.
class PmiRendezvous final : public Rendezvous {
 public:
  // Connects to the launcher. Throws Error(bootstrap) if it does not answer.
  PmiRendezvous();
  std::string name() const override { return "the launcher's PMI"; }
  void set(const std::string& key, const std::string& value) override;
  // Leaves the barrier that set() entered. The value stays, because PMI cannot remove keys; later
  // objects use other keys.
  void remove(const std::string& key) override;
  std::optional<std::string> get(const std::string& key) override;

 private:
  std::string unique(const std::string& key) const;

  int generation_;
  bool in_barrier_ = false;
};

}  // namespace tutti::bootstrap
