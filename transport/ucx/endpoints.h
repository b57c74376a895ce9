// UCX's endpoints of this process: one for each rank that it has sent to, for all communicators.
//
// Threads: one at a time, but for breaks().
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "transport/ucx/worker.h"

namespace tutti::ucx {

class Endpoints {
 public:
  explicit Endpoints(const Worker& worker) : worker_(worker) {}
  Endpoints(const Endpoints&) = delete;
  Endpoints& operator=(const Endpoints&) = delete;

  // Where the ranks of the job are: Worker::address(); empty of one that is known to be gone.
  // Before anything is sent.
  void find_by(std::function<std::string_view(int rank)> address_of) {
    address_of_ = std::move(address_of);
  }

  // To send to a rank now; null where the way there is broken.
  ucp_ep_h open(int rank);

  bool broken(int rank) const;
  std::string why(int rank) const;  // it is broken
  // How many have broken so far. Any thread.
  uint32_t breaks() const { return breaks_.load(std::memory_order_acquire); }
  void mark_broken(int rank, ucs_status_t status);

  // What is under way fails. When they return UCX touches no memory for it any more. Call back.
  void cut(int rank);
  void cut_all();

 private:
  struct Peer {
    Endpoints* owner = nullptr;
    ucp_ep_h endpoint = nullptr;
    bool broken = false;
    std::string why;
  };
  Peer& peer(int rank);
  static void on_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static void mark_broken(Peer& peer, const std::string& why);
  ucs_status_ptr_t begin_to_close(Peer& peer) const;
  void finish_closing(ucs_status_ptr_t request) const;

  const Worker& worker_;
  std::function<std::string_view(int rank)> address_of_;
  std::map<int, Peer> peers_;
  std::atomic<uint32_t> breaks_{0};
};

}  // namespace tutti::ucx
