// Fuzzes the real control channel of rank 0 of two, over the loopback: its child, rank 1, sends
// arbitrary bytes after its handshake. The input's first byte selects whether the messages before
// the rank table are correct.
#include "transport/bootstrap/control/control.h"

#include <sys/socket.h>

#include <array>
#include <future>
#include <span>

#include "tests/fuzz/target.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/peer_table.h"
#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/handshake/handshake.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

namespace {

constexpr uint64_t kCommunicator = 7;
enum Choice : uint8_t { kArrives = 1, kVotes = 2 };

Job job_of(int rank, int listen_fd, uint16_t port) {
  Job job;
  job.rank = rank;
  job.size = 2;
  job.master_address = "127.0.0.1";
  job.master_port = port;
  job.listen_fd = listen_fd;
  job.init_timeout = std::chrono::seconds(20);
  return job;
}

void write(ByteStream& socket, std::string_view bytes, const Deadline& deadline) {
  write_exactly(socket, std::as_bytes(std::span(bytes)), deadline);
}

// Runs rank 1 until the connection ends.
void be_child(uint16_t port, uint8_t choice, std::string_view bytes) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  Fd socket;
  fuzz::require(try_connect(resolve("127.0.0.1", port).front(), deadline, socket) == 0,
                "rank 0 listens");
  const Hello hello{.purpose = Purpose::bootstrap, .rank = 1, .size = 2};
  ByteStream stream = shake_hands(std::move(socket), hello, "", "rank 0", deadline);
  fuzz::require(static_cast<bool>(stream), "rank 0 accepts its child");
  if ((choice & kArrives) != 0) {
    FrameWriter arrival(FrameType::arrival);
    put(arrival, describe_self());
    write(stream, arrival.put_text("").finish(), deadline);
    std::string table;
    fuzz::require(read_frame(stream, table, kMaxTableBytes, deadline) == Transfer::complete,
                  "the child hears the table");
  }
  write(stream, bytes, deadline);
  ::shutdown(stream.get(), SHUT_WR);
  std::array<std::byte, 4096> ignored;
  while (read_exactly(stream.get(), ignored, deadline) == Transfer::complete) {
  }
}

// Runs rank 0 until the child's thread has ended. Requires that the control channel survives
// whatever the child sends.
void be_rank_zero(const Job& job, bool votes, const std::future<void>& child_has_ended) {
  const std::shared_ptr<Control> control = Control::connect(job);
  testing::AttachedClient client(*control, kCommunicator, {0, 1});
  std::future<AgreementEnd> agreed;
  if (votes) {
    agreed = control->agree(kCommunicator, 1, {.members = {0, 1}, .flags = 3},
                            std::chrono::milliseconds(1000));
  }
  child_has_ended.wait();
  if (votes) agreed.wait();
  control->deaths();
  if (!client->aborted()) return;
  const std::string why = client->wait_for_abort().what();
  fuzz::require(why.find("the control channel of") == why.npos, "the channel survives its child");
}

}  // namespace

}  // namespace tutti::bootstrap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::bootstrap;
  tutti::fuzz::Choices choices(tutti::fuzz::text_of(data, size));
  const uint8_t choice = choices.byte();
  tutti::Fd listener = listen_on(resolve("127.0.0.1", 0).front());
  const uint16_t port = local_address(listener.get()).port();
  const tutti::Job job = job_of(0, listener.release(), port);
  const std::future<void> child =
      std::async(std::launch::async, [&] { be_child(port, choice, choices.rest()); });
  tutti::fuzz::take("rank 1", [&] { be_rank_zero(job, (choice & kVotes) != 0, child); });
  return 0;
}
