// The fabric's wire format between two processes: messages with this header, which a payload may
// follow.
#pragma once

#include <cstdint>
#include <type_traits>

#include "transport/message.h"

namespace tutti::fabric {

enum class Kind : uint16_t {
  message = 1,       // the sequence-th message on its connection
  released = 2,      // number of messages of a connection that its reader has released
  end = 3,           // last message to a peer; signature: number of messages on each lane
  acknowledged = 4,  // acknowledges an `end`
  taken = 5,         // between drivers: a payload in place has been read
};

struct Header {
  // The receiver's key, sent with its address: proves that the sender belongs to its job.
  uint64_t key = 0;
  uint64_t communicator = 0;
  // Sender's rank in the communicator; in `acknowledged` and `taken`, its world rank.
  int32_t sender = 0;
  uint16_t lane = 0;
  Kind kind = Kind::message;
  uint32_t sequence = 0;  // index of a message on its connection, from 1
  // Number of the receiver's messages on this lane that the sender has released.
  uint32_t released = 0;
  MessageHeader message = {};  // in an `end`, call is the sender's world rank
};
static_assert(sizeof(Header) == 64 && std::is_trivially_copyable_v<Header>);

}  // namespace tutti::fabric
