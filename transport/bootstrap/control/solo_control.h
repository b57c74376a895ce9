// Control for a job of one rank: no sockets, no thread.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/control/process.h"

namespace tutti::bootstrap {

class SoloControl final : public Control {
 public:
  SoloControl();

  bool forked() const override { return current_process() != pid_; }
  const InitStats& init_stats() const override { return stats_; }
  const std::string& job_name() const override { return job_name_; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const PeerInfo& peer(int rank) const override;
  void attach(uint64_t communicator, std::vector<int> members, ControlClient* client) override;
  void detach(uint64_t communicator) override;
  std::optional<Error> deaths() const override { return {}; }
  void settle_deaths(std::span<const int>) override {}
  // Call the client from the caller's thread, because there is no control thread.
  void poison(uint64_t communicator, const Error& error) override;
  void ask(uint64_t communicator, int rank, uint32_t call) override;
  int way_to(int rank) const override { return rank; }
  bool has_left(int) const override { return false; }
  bool has_died(int) const override { return false; }
  void suspect(uint64_t, int, std::string) override {}  // there is no peer to lose
  // Throws Error(invalid_argument), because there is no peer to connect to.
  void open_connection(uint64_t communicator, int rank, int lane, Renewal renewal) override;
  std::future<AgreementEnd> agree(uint64_t communicator, uint32_t number, Contribution contribution,
                                  std::chrono::milliseconds timeout) override;
  void offer(const std::string& name, int fd) override;
  void withdraw(const std::string& name) override;
  Fd fetch(int rank, const std::string& name, const Deadline& deadline) override;

 private:
  void expect_communicator() override {}
  void stop_expecting() override {}

  const pid_t pid_ = current_process();
  const PeerInfo self_;
  const InitStats stats_;
  const std::string job_name_;
  std::mutex mutex_;
  std::condition_variable offered_;
  std::map<uint64_t, ControlClient*> clients_;
  std::map<std::string, Fd> offers_;
};

}  // namespace tutti::bootstrap
