// An attacker on the wire between two ranks, who records, modifies and redirects their data.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "transport/bootstrap/handshake/poll_set.h"

namespace tutti::testing {

class Proxy {
 public:
  // Data recorded on a connection since its beginning, in both directions.
  struct Heard {
    std::string by_connector;
    std::string by_acceptor;
  };
  // May modify bytes on their way to the acceptor; `before` bytes preceded them.
  using Meddle = std::function<void(size_t connection, size_t before, std::string& bytes)>;
  // Returns the port to which a connection is redirected; 0: the port `to`.
  using Route = std::function<uint16_t(size_t connection)>;

  explicit Proxy(uint16_t to, Meddle meddle = {}, Route route = {});
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  uint16_t port() const { return port_; }
  // Sends bytes to the acceptor as if they came from the connector.
  void inject(size_t connection, const std::string& bytes);
  std::vector<Heard> heard() const;
  // Returns all data of the wire, in both directions.
  std::string all() const;

 private:
  struct Pair {
    size_t number = 0;
    Fd connector;
    Fd acceptor;
    bool ended = false;
  };

  void serve(const std::stop_token& stop);
  void accept();
  void inject_what_is_due();
  void pass_on(Pair& pair, bool from_connector);

  const uint16_t to_;
  const Meddle meddle_;
  const Route route_;
  Fd listener_;
  uint16_t port_ = 0;
  std::list<Pair> pairs_;
  mutable std::mutex mutex_;
  std::vector<Heard> heard_;
  std::vector<std::pair<size_t, std::string>> to_inject_;
  std::jthread thread_;
};

}  // namespace tutti::testing
