// UCX as a fabric's driver: InfiniBand, RoCE, and all other transports of UCX. A message is one
// active message, {Header, payload}, which UCX sends eagerly or by its own rendezvous. There is one
// worker, and one endpoint per rank that was sent to. A write of exposed memory is a put followed
// by a flush of its endpoint; the write is complete when the flush is complete.
#pragma once

#include <ucp/api/ucp.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/fabric/driver.h"
#include "transport/ucx/worker.h"

namespace tutti::ucx {

class UcxDriver final : public fabric::Driver {
 public:
  // Starts UCX. Throws Error: unsupported (no UCX), system.
  explicit UcxDriver(fabric::Rma rma = fabric::Rma::automatic);
  ~UcxDriver() override;

  std::string name() const override { return "UCX"; }
  std::string address() const override { return worker_.address(); }
  void join(Ranks ranks) override { ranks_ = std::move(ranks); }
  void send(fabric::Send& send) override;
  void receive(const fabric::Arrival& arrival, std::byte* memory,
               std::atomic<fabric::RendezvousState>& coming) override;
  void drop(const fabric::Arrival& arrival) override;
  Exposed expose(std::span<std::byte> memory) override;
  void conceal(uint64_t id) override;
  std::unique_ptr<fabric::Remote> reach(int rank, std::string_view key) override;
  void access(fabric::Access& access) override;
  bool progress() override { return worker_.progress(); }
  int event_fd() const override { return worker_.event_fd(); }
  bool arm() override { return worker_.arm(); }
  void cut(int rank) override;
  void cut_all() override;
  void abandon() override {
    abandoned_ = true;
    worker_.abandon();
  }

 private:
  struct Peer {
    UcxDriver* driver = nullptr;
    int rank = 0;
    ucp_ep_h endpoint = nullptr;
    bool broken = false;
  };
  // Arguments of a send's callback.
  struct InFlight {
    UcxDriver* driver = nullptr;
    fabric::Send* send = nullptr;
  };

  static ucs_status_t on_message(void* driver, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* in_flight);
  static void on_received(void* request, ucs_status_t status, size_t bytes, void* coming);
  static void on_put(void* request, ucs_status_t status, void* nothing);
  static void on_accessed(void* request, ucs_status_t status, void* access);
  static void on_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  ucp_ep_h open(int rank);
  void end(InFlight& in_flight, ucs_status_t status);
  void mark_broken(Peer& peer, const std::string& why);
  ucs_status_ptr_t begin_to_close(Peer& peer) const;
  void finish_closing(ucs_status_ptr_t request) const;

  struct Foreign;

  const bool accesses_;  // true: remote memory access is used
  Worker worker_;
  Ranks ranks_;
  std::map<int, Peer> peers_;
  std::deque<InFlight> in_flight_;
  std::vector<InFlight*> free_;
  std::map<uint64_t, ucp_mem_h> exposed_;
  uint64_t next_exposed_ = 1;
  bool abandoned_ = false;
};

}  // namespace tutti::ucx
