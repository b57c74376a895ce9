// Turns SIGINT and SIGTERM into a stop request that a program polls.
#pragma once

namespace tutti::tool {

// While the object exists, the first SIGINT or SIGTERM is recorded, and a second one ends the
// process. At most one object may exist.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns the received signal, or 0 if there was none.
  static int requested();
};

}  // namespace tutti::tool
