// The two ends of a connection. NCCL's proxy drives them: one thread at a time polls (test()) and
// never blocks. Nothing progresses unless the proxy polls.
//
//     Receiver                                  Sender
//     post(): memory, tag  -- Post, stream 0 -->  offer(): the first post of that tag takes it
//     into that memory     <- slices, any stream --
//
// A message has a destination before it is sent. So nothing is buffered in between, messages of
// different tags need not be received in the order in which they were sent, and large messages are
// spread over all streams. NCCL posts receives some messages ahead, so that the sender usually
// finds a post.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/nccl_plugins/net_abi.h"
#include "bindings/nccl_plugins/net_meeting.h"
#include "bindings/nccl_plugins/net_stream.h"

namespace tutti::nccl {

class Link;

// A transfer of a link. NCCL's `request` points to it.
struct Transfer {
  Link* link = nullptr;
  bool used = false;
  uint64_t number = 0;  // sequence number of the receive
  std::byte* memory = nullptr;
  // Size of the message; for a receive the maximum, until the first slice arrives.
  uint64_t bytes = 0;
  bool is_known = false;  // true: `bytes` is the message's size
  uint64_t begun = 0;     // send: number of bytes handed to streams
  int in_flight = 0;      // send: number of slices in flight
  uint64_t arrived = 0;   // receive: number of bytes received
  bool is_done = false;
};

class Link {
 public:
  virtual ~Link() = default;
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Returns the size of the message and frees the transfer if it is complete; otherwise returns
  // nullopt. Throws Error(rank_died, connection_lost, mismatch) if the link has failed.
  std::optional<uint64_t> test(Transfer& transfer);

 protected:
  virtual void progress() = 0;
  Transfer* free_transfer();
  void fail(ErrorCode code, const std::string& what, const ErrorDetail& detail = {});
  void fail_of_end(const std::string& peer, int error);
  bool failed() const { return failure_.has_value(); }
  void throw_failure() const;

  std::array<Transfer, NCCL_NET_MAX_REQUESTS> transfers_;

 private:
  std::optional<Error> failure_;
};

class Sender final : public Link {
 public:
  explicit Sender(Streams streams);
  ~Sender() override;

  // Starts a send. Returns null if nothing is posted for this tag yet, or if too many transfers are
  // in flight. Throws what test() throws.
  Transfer* offer(const void* memory, uint64_t bytes, int tag);

 private:
  void progress() override;
  void read_posts();
  void take_post(const Post& post);
  bool begin_slice(SendStream& stream);
  void advance(SendStream& stream);
  void look_for_outage();

  std::string peer_;
  std::vector<SendStream> streams_;
  std::vector<Transfer*> on_stream_;  // by stream: the transfer whose slice it carries
  std::deque<Post> posts_;            // posts that no message has taken
  std::deque<Transfer*> waiting_;     // transfers that are not completely handed to streams
  Post post_;                         // the post that is being read
  size_t post_bytes_ = 0;
  int64_t next_look_ns_ = 0;
};

class Receiver final : public Link {
 public:
  explicit Receiver(Streams streams);

  // Posts a receive. Returns null if too many transfers are in flight. Throws what test() throws.
  Transfer* post(void* memory, uint64_t bytes, int tag);

 private:
  void progress() override;
  void send_posts();
  void advance(ReceiveStream& stream);
  bool place(ReceiveStream& stream);
  void take(const Slice& slice);
  void look_for_end();
  Transfer* find(uint64_t number);

  std::string peer_;
  std::vector<ReceiveStream> streams_;
  std::vector<std::byte> unsent_;  // queued posts
  uint64_t next_number_ = 1;
  int last_error_ = 0;
};

}  // namespace tutti::nccl
