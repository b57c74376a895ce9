// Tests SharedMemory and Multicast between processes, with each way to share memory.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/cuda/api.h"
#include "base/cuda/multicast.h"
#include "base/cuda/peer_memory.h"
#include "tests/base/cuda/child.h"
#include "tests/base/cuda/members.h"

namespace tutti::cuda {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

void set(const char* name, const char* value) { ::setenv(name, value, 1); }

struct Way {
  const char* name;
  const char* vmm;
  const char* fabric;
  Sharing sharing;
};

class Shared : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    set("FAKE_CUDA_VMM", GetParam().vmm);
    set("FAKE_CUDA_FABRIC", GetParam().fabric);
  }
  void TearDown() override {
    ::unsetenv("FAKE_CUDA_VMM");
    ::unsetenv("FAKE_CUDA_FABRIC");
  }
};

TEST_P(Shared, BothProcessesReadAndWriteTheMemory) {
  const Pipe there;
  const Pipe back;
  const Child exporter([&] {
    const Context context(0);
    const CurrentContext current(context);
    const Stream stream(context);
    const SharedMemory memory(context, 3 * kMiB);
    require(memory.exported().handle.sharing == GetParam().sharing, "it is shared this way");
    fill_async(memory.data(), std::byte{'a'}, memory.size(), stream.handle());
    synchronize(stream.handle());
    there.send(memory.exported());
    back.receive<char>();
    require(read(stream, memory.data(), 2) == std::vector<char>({'b', 'a'}), "writes are here");
  });
  const Child importer([&] {
    const Context context(1);
    const CurrentContext current(context);
    const Stream stream(context);
    const auto exported = there.receive<ExportedMemory>();
    std::optional<ImportedMemory> first(std::in_place, context, exported);
    const ImportedMemory second(context, exported);
    require(first->size() >= 3 * kMiB, "the size is the allocation's");
    require(second.data() == first->data(), "an allocation is opened once");
    first.reset();
    const std::byte* const last = second.data() + second.size() - 1;
    require(read(stream, last, 1) == std::vector<char>({'a'}), "it is the peer's");
    fill_async(second.data(), std::byte{'b'}, 1, stream.handle());
    synchronize(stream.handle());
    back.send('!');
  });
}

TEST_P(Shared, MemoryOfAKilledProcessIsAnErrorUnlessItIsOpen) {
  const Pipe there;
  const Pipe gone;
  std::optional<Child> importer;
  const pid_t exporter = ::fork();
  if (exporter == 0) {
    const Context context(0);
    const SharedMemory open(context, kMiB);
    const SharedMemory closed(context, kMiB);
    there.send(open.exported());
    there.send(closed.exported());
    for (;;) ::pause();
  }
  importer.emplace([&] {
    const Context context(1);
    const CurrentContext current(context);
    const Stream stream(context);
    const auto open = there.receive<ExportedMemory>();
    const auto closed = there.receive<ExportedMemory>();
    const ImportedMemory memory(context, open);
    gone.send('?');
    const Pipe& dead = there;
    dead.receive<char>();
    fill_async(memory.data(), std::byte{'b'}, 1, stream.handle());
    synchronize(stream.handle());
    try {
      const ImportedMemory late(context, closed);
      require(false, "it cannot be opened");
    } catch (const Error& error) {
      require(std::string(error.what()).find("GPU memory of process") != std::string::npos ||
                  std::string(error.what()).find("cuMemImport") != std::string::npos ||
                  std::string(error.what()).find("cuIpcOpen") != std::string::npos,
              error.what());
    }
  });
  gone.receive<char>();
  ::kill(exporter, SIGKILL);
  ASSERT_EQ(::waitpid(exporter, nullptr, 0), exporter);
  there.send('!');
}

INSTANTIATE_TEST_SUITE_P(Ways, Shared,
                         ::testing::Values(Way{"descriptor", "1", "0", Sharing::descriptor},
                                           Way{"fabric", "1", "1", Sharing::fabric},
                                           Way{"fabric_refused", "1", "2", Sharing::descriptor},
                                           Way{"ipc", "0", "0", Sharing::ipc}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Runs one of two processes. Each reads the memory of the other one through the multicast object.
void run_multicast(int rank, const Pipe& mine, const Pipe& theirs) {
  const auto meet = [&] {
    theirs.send('!');
    mine.receive<char>();
  };
  const Context context(rank);
  const Stream stream(context);
  std::optional<Multicast> object;
  if (rank == 0) {
    object.emplace(context, 2, kMiB);
    theirs.send(object->exported());
  } else {
    object.emplace(context, mine.receive<ExportedMulticast>());
  }
  const SharedMemory memory(context, object->size());
  meet();
  object->bind(memory.handle(), memory.size());
  meet();
  const std::vector<char*> members = members_of(object->data() + 8);
  require(members.size() == 2, "both are members");
  members[static_cast<size_t>(1 - rank)][0] = static_cast<char>('a' + rank);
  meet();
  require(members[static_cast<size_t>(rank)] == reinterpret_cast<char*>(memory.data() + 8),
          "the own memory is where it is");
  require(memory.data()[8] == std::byte('a' + 1 - rank), "the other wrote here");
  meet();
}

TEST_P(Shared, MulticastReachesTheOtherProcess) {
  if (GetParam().sharing == Sharing::ipc) {
    const Child alone([] {
      try {
        const Multicast object(Context(0), 2, kMiB);
        require(false, "there is no handle for others");
      } catch (const Error& error) {
        require(error.code() == ErrorCode::unsupported, error.what());
      }
    });
    return;
  }
  const Pipe first;
  const Pipe second;
  const Child one([&] { run_multicast(0, first, second); });
  const Child other([&] { run_multicast(1, second, first); });
}

TEST(Without, MulticastIsRefusedWithAReason) {
  set("FAKE_CUDA_MULTICAST", "0");
  const Child alone([] {
    const Context context(0);
    try {
      const Multicast object(context, 2, kMiB);
      require(false, "the device has none");
    } catch (const Error& error) {
      require(error.code() == ErrorCode::unsupported, error.what());
    }
  });
  ::unsetenv("FAKE_CUDA_MULTICAST");
}

}  // namespace
}  // namespace tutti::cuda
