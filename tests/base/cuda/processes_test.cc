// Tests access to GPU memory of other processes. The child processes use CUDA, the test process
// does not.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/cuda/api.h"
#include "base/cuda/memory.h"
#include "base/cuda/peer_memory.h"
#include "base/cuda/stream.h"
#include "tests/base/cuda/child.h"

namespace tutti::cuda {
namespace {

TEST(Processes, ReadAndWriteEachOthersMemory) {
  const Pipe there;
  const Pipe back;
  const Child exporter([&] {
    const Context context(0);
    const CurrentContext current(context);
    const Stream stream(context);
    const DeviceMemory memory(context, 1 << 20);
    fill_async(memory.data(), std::byte{'a'}, memory.size(), stream.handle());
    synchronize(stream.handle());
    there.send(export_memory(memory.data()));
    there.send(export_memory(memory.data() + 1000));
    back.receive<char>();
    const std::vector<char> values = read(stream, memory.data() + 999, 3);
    require(values == std::vector<char>({'a', 'b', 'b'}), "the peer's writes are here");
  });
  const Child importer([&] {
    const Context context(1);
    const CurrentContext current(context);
    const Stream stream(context);
    const auto whole = there.receive<ExportedMemory>();
    const auto part = there.receive<ExportedMemory>();
    std::optional<ImportedMemory> first(std::in_place, context, whole);
    const ImportedMemory second(context, part);
    require(first->size() == 1 << 20, "the size is the allocation's");
    require(second.data() == first->data() + 1000, "an allocation is opened once");
    require(describe(second.data()).kind == MemoryKind::device, "it is a device's memory");
    require(read(stream, second.data(), 2) == std::vector<char>({'a', 'a'}), "it is the peer's");
    first.reset();
    fill_async(second.data(), std::byte{'b'}, 2, stream.handle());
    synchronize(stream.handle());
    back.send('!');
  });
}

TEST(Processes, MemoryThatAllHaveClosedIsUnmapped) {
  const Pipe there;
  const Pipe back;
  const Child exporter([&] {
    const Context context(0);
    const CurrentContext current(context);
    const DeviceMemory memory(context, 4096);
    there.send(export_memory(memory.data()));
    back.receive<char>();
  });
  const Child importer([&] {
    const Context context(0);
    const CurrentContext current(context);
    const auto exported = there.receive<ExportedMemory>();
    std::optional<ImportedMemory> first(std::in_place, context, exported);
    std::optional<ImportedMemory> second(first);
    const std::byte* const at = first->data();
    require(api().mem_free.result(address(at)) == CUDA_ERROR_INVALID_VALUE, "it is the peer's");
    first.reset();
    require(describe(at).kind == MemoryKind::device, "the second one holds it");
    second.reset();
    require(describe(at).kind == MemoryKind::host, "nobody holds it");
    back.send('!');
  });
}

TEST(Processes, MemoryOfAnEndedProcessIsAnError) {
  const Pipe there;
  {
    const Child exporter([&] {
      const Context context(0);
      const CurrentContext current(context);
      const DeviceMemory memory(context, 4096);
      there.send(export_memory(memory.data()));
    });
  }
  const Child importer([&] {
    const Context context(0);
    const auto exported = there.receive<ExportedMemory>();
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        const ImportedMemory memory(context, exported);
        require(false, "it cannot be opened");
      } catch (const Error& error) {
        require(std::string(error.what()).find("cuIpcOpenMemHandle") != std::string::npos,
                error.what());
      }
    }
  });
}

TEST(Processes, ForkedProcessesHaveNoCuda) {
  const Child parent([] {
    const Context context(0);
    const Child child([&] {
      require(api().ctx_push_current.result(context.handle()) == CUDA_ERROR_NOT_INITIALIZED,
              "the driver is the parent's");
    });
  });
}

}  // namespace
}  // namespace tutti::cuda
