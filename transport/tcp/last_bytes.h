// Connections whose sender is done with them while their last bytes may still be on their way. A
// process that ends with its host, or whose network goes with it, would take these along.
#pragma once

#include <chrono>
#include <mutex>
#include <vector>

#include "base/fd.h"

namespace tutti {

class LastBytes {
 public:
  // Any thread. Connected sockets that were shut down for sending; those whose bytes have all
  // arrived are closed, now or when more come. `patience`: see wait(); 0: for ever.
  void add(std::vector<Fd> sockets, std::chrono::nanoseconds patience);
  // Until the readers' systems have everything, however long that takes, but no longer than
  // `patience` without any of it arriving.
  void wait();

 private:
  // Closes what has arrived or broken; returns how many bytes have not arrived.
  size_t look();

  std::mutex mutex_;
  std::vector<Fd> sockets_;
  std::chrono::nanoseconds patience_{0};
};

}  // namespace tutti
