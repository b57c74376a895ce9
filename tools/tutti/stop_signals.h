// SIGINT and SIGTERM as a wish that a program asks for when it suits it.
#pragma once

namespace tutti::tool {

// While it lives, the first of these signals is kept, and a second one ends the process as it would
// without. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that came; 0: none.
  static int requested();
};

}  // namespace tutti::tool
