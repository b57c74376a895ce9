// What goes over a fabric between two processes: messages with this header, which a payload may
// follow.
#pragma once

#include <cstdint>
#include <type_traits>

#include "transport/message.h"

namespace tutti::fabric {

enum class Kind : uint16_t {
  message = 1,       // the sequence-th on its connection
  released = 2,      // how many messages of a connection its reader has released
  end = 3,           // signature: how many messages each lane has carried, there will be no more
  acknowledged = 4,  // an end has come
  taken = 5,         // between drivers: what was to be read where it lies has been
};

struct Header {
  uint64_t key = 0;  // the receiver's, from its address: proves that the sender is of its job
  uint64_t communicator = 0;
  int32_t sender = 0;  // its rank in the communicator; acknowledged, taken: in the world
  uint16_t lane = 0;
  Kind kind = Kind::message;
  uint32_t sequence = 0;       // from 1
  uint32_t released = 0;       // by the sender, of the receiver's messages on this lane
  MessageHeader message = {};  // end: call is the sender's rank in the world
};
static_assert(sizeof(Header) == 64 && std::is_trivially_copyable_v<Header>);

}  // namespace tutti::fabric
