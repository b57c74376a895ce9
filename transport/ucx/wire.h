// What goes over UCX between two processes: active messages with this header; a message's payload
// follows as the active message's data.
#pragma once

#include <cstdint>
#include <type_traits>

#include "transport/message.h"

namespace tutti::ucx {

inline constexpr unsigned kMessageId = 0;  // of active messages

enum class Kind : uint16_t {
  message = 1,       // the sequence-th on its connection
  released = 2,      // how many messages of a connection its reader has released
  end = 3,           // signature: how many messages each lane has carried, there will be no more
  acknowledged = 4,  // an end has come
};

struct Header {
  uint64_t key = 0;  // the receiver's, from its address: proves that the sender is of its job
  uint64_t communicator = 0;
  int32_t sender = 0;  // its rank in the communicator; acknowledged: in the world
  uint16_t lane = 0;
  Kind kind = Kind::message;
  uint32_t sequence = 0;       // from 1
  uint32_t released = 0;       // by the sender, of the receiver's messages on this lane
  MessageHeader message = {};  // end: call is the sender's rank in the world
};
static_assert(sizeof(Header) == 64 && std::is_trivially_copyable_v<Header>);

}  // namespace tutti::ucx
