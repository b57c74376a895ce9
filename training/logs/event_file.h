// Writes TensorBoard's event files (tensorflow/core/util/event.proto, summary.proto), limited to
// scalars. Each record has TFRecord framing and contains an Event:
//
//   record    length: uint64 | masked CRC-32C of the length | bytes | masked CRC-32C of the bytes
//   Event     wall_time 1, step 2, file_version 3, summary 5, session_log 7
//   Summary   value 1: tag 1, simple_value 2 (float)
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "training/logs/scalars.h"

namespace tutti::training {

class EventFile {
 public:
  // Creates `directory`; creates a new file in it when the first event is written. `continues`: the
  // run continues an earlier one, so the file makes TensorBoard discard later steps of earlier
  // files. Throws Error(system) if the directory cannot be created or written.
  EventFile(std::string directory, bool continues);

  // Writes the numbers, converted to float. Skips numbers that are not finite.
  void write(const Scalars& scalars);

  const std::string& path() const { return path_; }

 private:
  void begin(uint64_t step);
  void record(std::string_view event);

  std::string path_;
  bool continues_;
  std::ofstream file_;
};

// Returns the CRC-32C (Castagnoli; RFC 3720, appendix B.4) of the bytes.
uint32_t crc32c(std::string_view bytes);

}  // namespace tutti::training
