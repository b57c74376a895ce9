// libfabric as a fabric's driver: verbs, EFA, Slingshot (cxi), Omni-Path, and all else that has a
// provider there with reliable datagrams.
//
//     small    {Header, payload} in one message, out of and into buffers of this driver's
//     large    {Header, Remote}: the reader reads the payload where it lies (fi_read), straight to
//              where it is wanted, and says when that is done (Kind::taken)
//
// Nothing is asked of the order of messages. All completions are taken in progress(): a provider
// may need that to move anything. What a provider has no room for now waits in a queue of ours.
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
  // As choose() in cards.h. Throws Error: unsupported, system.
  explicit OfiDriver(const Near& near, const std::string& provider = "");
  ~OfiDriver() override;

  std::string name() const override { return "libfabric (" + fabric_.provider() + ")"; }
  std::string address() const override;
  void join(Ranks ranks) override { ranks_ = std::move(ranks); }
  void will_use(std::span<std::byte> memory) override;
  void send(fabric::Send& send) override;
  void receive(const fabric::Arrival& arrival, std::byte* memory,
               std::atomic<fabric::Coming>& coming) override;
  void drop(const fabric::Arrival& arrival) override;
  bool progress() override;
  int event_fd() const override { return closed_ ? -1 : fabric_.event_fd; }
  bool needs_polling() const override {
    return !closed_ && (fabric_.event_fd < 0 || !waiting_.empty());
  }
  // Rather than a network card.
  bool by_sockets() const;
  bool arm() override;
  void cut(int rank) override;
  void cut_all() override;
  void abandon() override;

 private:
  // Where a payload lies.
  struct Remote {
    uint64_t key = 0;
    uint64_t address = 0;
    uint64_t id = 0;   // the owner's, of this loan
    int32_t rank = 0;  // the owner
  };

  // What a completion tells of. libfabric's part comes first, so that its address is this one's.
  struct Operation {
    enum class What : uint8_t { receive, send, read };
    fi_context2 context = {};
    What what;
    int rank = 0;  // the other side; not of a receive
  };
  // A message of ours that is sent from, or one that may come.
  struct Buffer : Operation {
    std::byte* memory = nullptr;  // kBufferBytes
    void* descriptor = nullptr;
    size_t bytes = 0;
    fabric::Send* send = nullptr;  // ends with it; null: nobody waits
  };
  struct Read : Operation {
    Remote from;
    std::byte* memory = nullptr;
    size_t bytes = 0;
    Registration own;
    void* descriptor = nullptr;
    std::atomic<fabric::Coming>* coming = nullptr;  // null: not in use
  };
  // A payload that is read by its receiver.
  struct Loan {
    fabric::Send* send = nullptr;
    Registration registration;  // not where the memory stays registered
  };
  Buffer& take_buffer();
  // That sends this header so far.
  Buffer& take_buffer_for(int rank, const fabric::Header& header);
  void make_buffers();
  void post_receive(Buffer& buffer);
  void begin(Operation& operation);
  ssize_t try_to_begin(Operation& operation);
  bool begin_waiting();
  void lend(fabric::Send& send, Buffer& buffer);
  void notify_taken(const Remote& remote);
  fi_addr_t address_of(int rank);

  void completed(Operation& operation, size_t bytes);
  void failed(Operation& operation, const std::string& why);
  bool take_error();
  void hear(Buffer& buffer, size_t bytes);
  static Remote remote_in(const void* data);
  void end_loan(uint64_t id, int rank, bool well);
  void end_sends(int rank, const std::string& why);
  void close();
  void close_endpoint();

  Registration registered(std::span<const std::byte> memory, uint64_t access);
  const Registration* kept(const std::byte* memory) const;
  uint64_t address_in(const std::byte* memory) const;

  Endpoint fabric_;
  const bool local_;  // own memory must be registered, too
  Ranks ranks_;
  std::map<int, fi_addr_t> peers_;
  uint64_t next_key_ = 1;
  uint64_t next_loan_ = 1;
  std::map<const std::byte*, Registration> kept_;     // by where the memory begins
  std::vector<std::unique_ptr<std::byte[]>> blocks_;  // of buffers' memory
  std::vector<Registration> block_registrations_;
  std::deque<Buffer> buffers_;
  std::vector<Buffer*> free_;
  std::deque<Read> reads_;
  std::map<uint64_t, Loan> loans_;
  std::vector<Operation*> waiting_;  // until there is room for them
  bool closed_ = false;
};

}  // namespace tutti::ofi
