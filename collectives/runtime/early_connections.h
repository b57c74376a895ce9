// Holds data connections from peers that arrive while this rank is still creating its paths.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "transport/paths/paths.h"
#include "transport/stream/byte_stream.h"

namespace tutti::internal {

// The held connections. Thread-safe.
class EarlyConnections {
 public:
  // Passes the connection to the paths: at once after open(), otherwise when open() is called.
  void accept(int peer, int lane, int number, ByteStream socket) {
    const std::lock_guard lock(mutex_);
    if (paths_ != nullptr) {
      paths_->accept(peer, lane, number, std::move(socket));
    } else {
      early_.push_back({peer, lane, number, std::move(socket)});
    }
  }
  // Passes all held connections to the paths, which must be ready. `paths` must outlive the last
  // call of accept().
  void open(Paths& paths) {
    const std::lock_guard lock(mutex_);
    paths_ = &paths;
    for (Connection& early : early_) {
      paths.accept(early.peer, early.lane, early.number, std::move(early.socket));
    }
    early_.clear();
  }

 private:
  struct Connection {
    int peer = 0;
    int lane = 0;
    int number = 0;
    ByteStream socket;
  };
  std::mutex mutex_;
  Paths* paths_ = nullptr;
  std::vector<Connection> early_;
};

}  // namespace tutti::internal
