// Framed messages of the bootstrap, the control links and the descriptor service:
//
//     u32 length of the rest | u8 type | fields
//
// A field is a little-endian integer or a text; a text consists of a u32 length and the bytes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"

namespace tutti::bootstrap {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

enum class FrameType : uint8_t {
  // bootstrap
  arrival = 1,   // a rank's PeerInfo and settings, to rank 0
  released = 2,  // the job's identity, from rank 0; later frames go to the rank's own listener
  table = 3,     // the job's identity and the PeerInfo of all ranks, from the parent in the tree
  failure = 4,   // an error: why the job cannot start
  linked = 5,    // all ranks below the sender are linked; the first frame sent to the parent
  // control links
  goodbye = 10,    // fields: rank
  death = 11,      // fields: rank, whether by itself, whether certain, text
  abort = 12,      // fields: communicator, error
  question = 13,   // fields: communicator, from, to, call
  answer = 14,     // fields: communicator, from, to, call, text
  agreement = 15,  // fields: to, and the fields that agreement.cc writes
  // observers (watchers.h): the last two are between an observer and the rank it connects to
  activity_question = 16,  // fields: to, from, number of the look
  activity = 17,           // fields: to, from, number of the look, Activity
  look = 18,               // no fields
  status = 19,             // fields: RankStatus
  // descriptor service
  fetch = 20,  // fields: name
};

// Limit of a control frame; a longer one comes from a broken or foreign peer.
inline constexpr size_t kMaxFrameBytes = 64 << 10;
inline constexpr size_t kMaxTextBytes = 16 << 10;  // longer texts are truncated
// Limit of the table of all ranks.
inline constexpr size_t kMaxTableBytes = 256 << 20;

class FrameWriter {
 public:
  explicit FrameWriter(FrameType type) : bytes_(sizeof(uint32_t), '\0') {
    put(static_cast<uint8_t>(type));
  }
  template <typename T>
  requires std::is_integral_v<T> FrameWriter& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  FrameWriter& put_text(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  // Returns the whole frame, ready to be sent.
  std::string finish() {
    const auto length = static_cast<uint32_t>(bytes_.size() - sizeof(uint32_t));
    std::memcpy(bytes_.data(), &length, sizeof(length));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

// Reads a frame's body (type and fields). Reading past the end returns zeros and clears ok().
class FrameReader {
 public:
  explicit FrameReader(std::string_view body) : left_(body) {
    type_ = static_cast<FrameType>(get<uint8_t>());
  }
  FrameType type() const { return type_; }
  bool ok() const { return ok_; }

  template <typename T>
  requires std::is_integral_v<T> T get() {
    T value{};
    if (!take(sizeof(value))) return value;
    std::memcpy(&value, taken_.data(), sizeof(value));
    return value;
  }
  std::string get_text() {
    const auto length = get<uint32_t>();
    return take(length) ? std::string(taken_) : std::string();
  }

 private:
  bool take(size_t bytes) {
    ok_ = ok_ && bytes <= left_.size();
    if (!ok_) return false;
    taken_ = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return true;
  }

  std::string_view left_;
  std::string_view taken_;
  FrameType type_{};
  bool ok_ = true;
};

// Returns true for frames that are sent again until they are answered, so that the loss of one does
// no harm.
inline bool is_repeated(std::string_view frame) {
  const FrameType type = FrameReader(frame.substr(sizeof(uint32_t))).type();
  return type == FrameType::question || type == FrameType::activity_question ||
         type == FrameType::agreement;
}

// Rebuilds the frame from its body, for forwarding.
inline std::string whole_frame(std::string_view body) {
  const auto length = static_cast<uint32_t>(body.size());
  std::string frame(reinterpret_cast<const char*>(&length), sizeof(length));
  return frame.append(body);
}

inline std::string_view cut_text(std::string_view text) { return text.substr(0, kMaxTextBytes); }

// Appends an error as fields of a frame.
inline FrameWriter& put_error(FrameWriter& frame, const Error& error) {
  return frame.put(static_cast<int32_t>(error.code()))
      .put(int32_t{error.rank()})
      .put_text(cut_text(error.what()));
}
inline Error get_error(FrameReader& frame) {
  const auto code = static_cast<ErrorCode>(frame.get<int32_t>());
  const auto rank = frame.get<int32_t>();
  return Error(code, frame.get_text(), {.rank = rank});
}

inline std::string failure_frame(const Error& error) {
  FrameWriter frame(FrameType::failure);
  return put_error(frame, error).finish();
}

}  // namespace tutti::bootstrap
