// libfabric as a fabric's driver: verbs, EFA, Slingshot (cxi), Omni-Path, and all other providers
// with reliable datagrams.
//
//     small    {Header, payload} in one message, from and into buffers of this driver
//     large    {Header, Remote}: the reader reads the payload in place (fi_read), directly to its
//              destination, and reports completion (Kind::taken)
//     windows  fi_read and fi_write of memory that its owner has exposed; a write completes once it
//              is visible there (FI_DELIVERY_COMPLETE)
//
// Messages may arrive in any order. progress() reads the completion queue each time, because some
// providers make progress only then. Operations for which a provider has no room are queued here.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/fabric/driver.h"
#include "transport/ofi/resources.h"

namespace tutti::ofi {

class OfiDriver final : public fabric::Driver {
 public:
  // Opens the provider and interface that choose() in cards.h selects. Throws Error: unsupported,
  // system.
  explicit OfiDriver(const Near& near, const std::string& provider = "",
                     fabric::Rma rma = fabric::Rma::automatic);
  ~OfiDriver() override;

  std::string name() const override { return "libfabric (" + fabric_.provider() + ")"; }
  std::string address() const override;
  void join(Ranks ranks) override { ranks_ = std::move(ranks); }
  void will_use(std::span<std::byte> memory) override;
  void send(fabric::Send& send) override;
  void receive(const fabric::Arrival& arrival, std::byte* memory,
               std::atomic<fabric::RendezvousState>& coming) override;
  void drop(const fabric::Arrival& arrival) override;
  Exposed expose(std::span<std::byte> memory) override;
  void conceal(uint64_t id) override { exposed_.erase(id); }
  std::unique_ptr<fabric::Remote> reach(int rank, std::string_view key) override;
  void access(fabric::Access& access) override;
  bool progress() override;
  int event_fd() const override { return closed_ ? -1 : fabric_.event_fd; }
  bool needs_polling() const override {
    return !closed_ && (fabric_.event_fd < 0 || !waiting_.empty());
  }
  // Returns true if the provider uses sockets instead of a network card.
  bool by_sockets() const;
  bool arm() override;
  void cut(int rank) override;
  void cut_all() override;
  void abandon() override;

 private:
  // The location of a payload.
  struct Remote {
    uint64_t key = 0;
    uint64_t address = 0;
    uint64_t id = 0;   // ID of this loan at its owner
    int32_t rank = 0;  // rank of the owner in the job
  };

  // An operation in flight. libfabric's context is the first member, so that a pointer to the
  // context is a pointer to the operation.
  struct Operation {
    enum class Type : uint8_t { receive, send, read, access };
    fi_context2 context = {};
    Type type;
    int rank = 0;  // the peer; unused for a receive
  };
  // A message being sent, or a posted receive buffer.
  struct Buffer : Operation {
    std::byte* memory = nullptr;  // kBufferBytes bytes
    void* descriptor = nullptr;
    size_t bytes = 0;
    fabric::Send* send = nullptr;  // the send that completes with this message; null: none
  };
  struct Read : Operation {
    Remote from;
    std::byte* memory = nullptr;
    size_t bytes = 0;
    Registration own;
    void* descriptor = nullptr;
    // Where completion is reported; null: not in use.
    std::atomic<fabric::RendezvousState>* coming = nullptr;
  };
  // A read or write of exposed memory.
  struct Accessing : Operation {
    fabric::Access* access = nullptr;  // null: not in use
    void* descriptor = nullptr;
  };
  struct Foreign;
  // A payload that its receiver reads in place.
  struct Loan {
    fabric::Send* send = nullptr;
    Registration registration;  // empty if the memory stays registered
  };
  Buffer& take_buffer();
  // Returns a buffer for sending this header.
  Buffer& take_buffer_for(int rank, const fabric::Header& header);
  void make_buffers();
  void post_receive(Buffer& buffer);
  void begin(Operation& operation);
  ssize_t try_to_begin(Operation& operation);
  ssize_t try_to_access(Accessing& accessing);
  bool begin_waiting();
  void lend(fabric::Send& send, Buffer& buffer);
  void notify_taken(const Remote& remote);
  fi_addr_t address_of(int rank);

  void completed(Operation& operation, size_t bytes);
  void failed(Operation& operation, const std::string& why);
  bool take_error();
  void on_received(Buffer& buffer, size_t bytes);
  static Remote remote_in(const void* data);
  void end_loan(uint64_t id, int rank, bool well);
  void end_sends(int rank, const std::string& why);
  void close();
  void close_endpoint();

  Registration registered(std::span<const std::byte> memory, uint64_t access);
  const Registration* kept(const std::byte* memory) const;
  uint64_t address_in(const std::byte* memory) const;

  Endpoint fabric_;
  const bool local_;     // true: local memory must be registered, too
  const bool accesses_;  // true: remote memory access is used
  Ranks ranks_;
  std::map<int, fi_addr_t> peers_;
  uint64_t next_key_ = 1;
  uint64_t next_loan_ = 1;
  std::map<const std::byte*, Registration> kept_;  // kept registrations, by the memory's beginning
  std::vector<std::unique_ptr<std::byte[]>> blocks_;  // memory of the buffers
  std::vector<Registration> block_registrations_;
  std::deque<Buffer> buffers_;
  std::vector<Buffer*> free_;
  std::deque<Read> reads_;
  std::deque<Accessing> accessing_;
  std::map<uint64_t, Registration> exposed_;  // by Exposed::id
  std::map<uint64_t, Loan> loans_;
  std::vector<Operation*> waiting_;  // queued until there is room
  bool closed_ = false;
};

}  // namespace tutti::ofi
