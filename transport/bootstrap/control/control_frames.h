// Writers of control frames that several files send.
#pragma once

#include <cstdint>
#include <string>

#include "transport/bootstrap/control/client_table.h"
#include "transport/bootstrap/handshake/frame.h"

namespace tutti::bootstrap {

inline std::string death_frame(const Death& death) {
  return FrameWriter(FrameType::death)
      .put(int32_t{death.rank})
      .put(uint8_t{death.by_itself})
      .put(uint8_t{death.certain})
      .put_text(cut_text(death.text))
      .finish();
}

inline std::string goodbye_frame(int rank) {
  return FrameWriter(FrameType::goodbye).put(int32_t{rank}).finish();
}

inline std::string abort_frame(uint64_t communicator, const Error& error) {
  FrameWriter frame(FrameType::abort);
  return put_error(frame.put(communicator), error).finish();
}

}  // namespace tutti::bootstrap
