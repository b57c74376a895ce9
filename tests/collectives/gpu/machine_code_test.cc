// Tests properties of the kernels' machine code that no emulation shows. The code for each GPU
// architecture in the linked fat binary is disassembled by CUDA's cuobjdump. The tests are skipped
// if either is missing.
//
//     LDG.E.128.STRONG.SYS R4, [R2]      loads 16 bytes at once, ordered among all GPUs
//     LD.E.128 R4, [R2.64]               loads 16 bytes of data, without an order
//     MEMBAR.ALL.SYS                     a fence among all GPUs and the host
//     @P0 BRA 0x470                      a branch; if it goes back, the code between is a loop
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/process.h"

namespace tutti {
namespace {

using testing::Process;
using testing::Result;

constexpr int kMostRegisters = 128;  // a block of 512 threads shares 65536 registers
constexpr size_t kKernels = 18;      // one for each type
constexpr const char* kArchitectures[] = {"sm_80", "sm_90", "sm_100"};

std::string image;  // path of the fat binary

struct Instruction {
  std::string name;  // without operands
  uint64_t address = 0;
  uint64_t branches_to = UINT64_MAX;  // address to which the instruction branches
};

using Code = std::span<const Instruction>;

int count(Code code, const std::string& pattern) {
  const std::regex matches(pattern);
  return static_cast<int>(std::ranges::count_if(
      code, [&](const Instruction& one) { return std::regex_match(one.name, matches); }));
}

struct Kernel {
  int registers = -1;
  int stack = -1;
  int spilled = -1;                       // bytes of local memory
  std::vector<Instruction> instructions;  // in order

  int count(const std::string& pattern) const { return tutti::count(instructions, pattern); }
  // Returns the loops. Each extends from the target of a backward branch to the branch.
  std::vector<Code> loops() const {
    std::map<size_t, size_t> ends;  // start -> end of a loop
    for (size_t i = 0; i < instructions.size(); ++i) {
      if (instructions[i].branches_to >= instructions[i].address) continue;
      const auto head = std::ranges::lower_bound(instructions, instructions[i].branches_to, {},
                                                 &Instruction::address);
      ends[static_cast<size_t>(head - instructions.begin())] = i + 1;
    }
    std::vector<Code> found;
    for (const auto& [begin, end] : ends) {
      found.push_back(Code(instructions).subspan(begin, end - begin));
    }
    return found;
  }
};

constexpr const char* kDataLoad = "LDG?\\.E\\.128";
constexpr const char* kDataStore = "STG?\\.E\\.128";

// Returns true if the loop accesses memory only in units of 16 bytes, not counting shared and
// constant memory.
bool moves_vectors_only(Code loop) {
  const int loads = count(loop, kDataLoad);
  const int stores = count(loop, kDataStore);
  return loads > 1 && stores > 1 && count(loop, "(LD|ST)(|G|L)(\\..*)?") == loads + stores;
}

int loads_before_first_store(Code loop) {
  const std::regex is_store(kDataStore);
  const auto store = std::ranges::find_if(
      loop, [&](const Instruction& one) { return std::regex_match(one.name, is_store); });
  return count(loop.first(static_cast<size_t>(store - loop.begin())), kDataLoad);
}

using Name = std::pair<std::string, std::string>;  // architecture and kernel
using Kernels = std::map<Name, Kernel>;

std::string cuobjdump(const std::string& what) {
  const Result result = Process({CUOBJDUMP, what, image}).finish();
  EXPECT_EQ(result.code, 0) << result.err;
  return result.out;
}

void read_resources(Kernels& kernels) {
  std::istringstream lines(cuobjdump("-res-usage"));
  std::string architecture;
  std::string function;
  std::smatch match;
  const std::regex is_architecture("arch = (sm_[0-9]+).*");
  const std::regex is_function(" Function (.*):");
  const std::regex is_usage(".*REG:([0-9]+) STACK:([0-9]+) .*LOCAL:([0-9]+) .*");
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, is_architecture)) architecture = match[1];
    if (std::regex_match(line, match, is_function)) function = match[1];
    if (!std::regex_match(line, match, is_usage)) continue;
    Kernel& kernel = kernels[{architecture, function}];
    kernel.registers = std::stoi(match[1]);
    kernel.stack = std::stoi(match[2]);
    kernel.spilled = std::stoi(match[3]);
  }
}

// Parses a line such as "        /*0040*/                   @P0 BRA 0x470 ;   /* 0x... */". Ignores
// other lines.
void read_instruction(const std::string& line, std::vector<Instruction>& instructions) {
  static const std::regex is_instruction(
      " +/\\*([0-9a-f]+)\\*/ +(?:@\\S+ +)?([A-Z][^ ;]*)([^;]*);.*");
  static const std::regex is_target(".*0x([0-9a-f]+) *");
  std::smatch match;
  if (!std::regex_match(line, match, is_instruction)) return;
  Instruction one{.name = match[2], .address = std::stoull(match[1], nullptr, 16)};
  const std::string operands = match[3];
  if (one.name.starts_with("BRA") && std::regex_match(operands, match, is_target)) {
    one.branches_to = std::stoull(match[1], nullptr, 16);
  }
  instructions.push_back(one);
}

void read_instructions(Kernels& kernels) {
  std::istringstream lines(cuobjdump("-sass"));
  std::string architecture;
  Kernel* kernel = nullptr;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("arch = ")) architecture = line.substr(7);
    const size_t function = line.find("Function : ");
    if (function != std::string::npos)
      kernel = &kernels[{architecture, line.substr(function + 11)}];
    if (kernel != nullptr) read_instruction(line, kernel->instructions);
  }
}

const Kernels& all_kernels() {
  static const Kernels kernels = [] {
    Kernels found;
    read_resources(found);
    read_instructions(found);
    return found;
  }();
  return kernels;
}

class MachineCode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(CUOBJDUMP).empty()) {
      GTEST_SKIP() << "no cuobjdump: `tools/setup --cuda` gets it";
    }
    if (image.find("no_kernels") != image.npos) GTEST_SKIP() << "no nvcc: there are no kernels";
  }
  // Runs check() on each kernel.
  template <typename Check>
  static void of_each(const Check& check) {
    for (const auto& [name, kernel] : all_kernels()) {
      SCOPED_TRACE(name.first + " " + name.second);
      check(kernel);
    }
  }
};

TEST_F(MachineCode, EachTypeAndGpuHasIt) {
  std::map<std::string, std::set<std::string>> by_architecture;
  for (const auto& [name, kernel] : all_kernels()) {
    by_architecture[name.first].insert(name.second);
    EXPECT_GT(kernel.instructions.size(), 100u) << name.first << ' ' << name.second;
    std::printf("%-7s %-20s %3d registers, %d bytes spilled, %d of stack, %6zu instructions\n",
                name.first.c_str(), name.second.c_str(), kernel.registers, kernel.spilled,
                kernel.stack, kernel.instructions.size());
  }
  for (const char* const architecture : kArchitectures) {
    EXPECT_EQ(by_architecture[architecture].size(), kKernels) << architecture;
  }
}

TEST_F(MachineCode, KeepsAllInRegisters) {
  of_each([](const Kernel& kernel) {
    EXPECT_GT(kernel.registers, 0);
    EXPECT_LE(kernel.registers, kMostRegisters);
    EXPECT_EQ(kernel.spilled, 0);
    EXPECT_EQ(kernel.stack, 0);
    EXPECT_EQ(kernel.count("(LD|ST)L\\..*"), 0);
  });
}

// Slices of aligned memory are accessed in units of 16 bytes. In a copy, four units are in flight,
// for every type.
TEST_F(MachineCode, CopiesAndReducesSixteenBytesAtATime) {
  of_each([](const Kernel& kernel) {
    int of_vectors = 0;
    int in_flight = 0;
    for (const Code loop : kernel.loops()) {
      if (!moves_vectors_only(loop)) continue;
      ++of_vectors;
      in_flight = std::max(in_flight, loads_before_first_store(loop));
    }
    EXPECT_EQ(of_vectors, 2) << "the loop that copies, and the one that reduces";
    EXPECT_GE(in_flight, 4);
  });
}

// A line contains data and a flag. If it were written by two stores, a peer could see the flag
// without the data.
TEST_F(MachineCode, NeverSplitsALine) {
  of_each([](const Kernel& kernel) {
    EXPECT_GT(kernel.count("STG?\\.E\\.128\\.STRONG\\.SYS"), 0);
    EXPECT_GT(kernel.count("LDG?\\.E\\.128\\.STRONG\\.SYS"), 0);
    // All other ordered accesses are to 8-byte words: counters, signatures, and the stop word.
    EXPECT_EQ(kernel.count("(ST|LD)G?\\.E(\\.[SU](8|16))?\\.STRONG.*"), 0);
  });
}

TEST_F(MachineCode, SynchronizesWithAllGpusAndTheHost) {
  of_each([](const Kernel& kernel) {
    EXPECT_EQ(kernel.count(".*STRONG\\.(GPU|SM|CTA).*"), 0);
    // The alias fence consists of fences of both scopes.
    EXPECT_EQ(kernel.count("MEMBAR.*\\.(GPU|VC)"), kernel.count("MEMBAR\\.SC\\.SYS"));
  });
}

// If PTX supports sums by the switch, a kernel has four such sums of 16 bytes in flight, adds
// 16-bit floats in float, and has fences between these sums and the ranks' writes through other
// addresses.
TEST_F(MachineCode, LeavesSumsToTheSwitch) {
  for (const auto& [name, kernel] : all_kernels()) {
    SCOPED_TRACE(name.first + " " + name.second);
    const std::string& type = name.second.substr(name.second.rfind('_') + 1);
    const bool adds = name.first != "sm_80" &&
                      (name.second == "tutti_run_f32" || type == "f16" || type == "bf16");
    EXPECT_EQ(kernel.count("LDGMC\\.E\\..*ADD\\.(F32x4|B?F16x8)\\.RN\\.STRONG\\.SYS"),
              adds ? 4 : 0);
    EXPECT_EQ(kernel.count("LDGMC\\.E\\.ADD\\.B?F16.*"), 0);
    EXPECT_EQ(kernel.count("MEMBAR\\.SC\\.SYS"), adds ? 2 : 0);
  }
}

// Each loop that waits for other GPUs must contain an acquire, which invalidates caches. Loops that
// wait for lines occur several times, because the compiler unrolls the code around them.
TEST_F(MachineCode, AcquiresWhatItWaitsFor) {
  of_each([](const Kernel& kernel) {
    int waits = 0;
    for (const Code loop : kernel.loops()) {
      const bool does_nothing_else = count(loop, "STG?\\..*") == 0;
      if (!does_nothing_else || count(loop, "LDG?\\.E\\.(64|128)\\.STRONG\\.SYS") == 0) continue;
      EXPECT_GT(count(loop, "CCTL\\.IVALL"), 0) << "at " << std::hex << loop.front().address;
      ++waits;
    }
    EXPECT_GE(waits, 5) << "for messages, for room, for readers of one message, of all that a step "
                           "overwrites, and of all in the end";
  });
}

// A release is a fence, followed by stores of words without any other memory access in between.
TEST_F(MachineCode, FencesBeforeEachWordThatIsPublished) {
  const std::regex is_access("(LD|ST)G?\\..*");
  const std::regex is_word("STG?\\.E\\.64\\.STRONG\\.SYS");
  of_each([&](const Kernel& kernel) {
    bool fenced = false;
    int published = 0;
    for (const Instruction& one : kernel.instructions) {
      if (one.name.starts_with("MEMBAR") && one.name.ends_with(".SYS")) fenced = true;
      if (!std::regex_match(one.name, is_access)) continue;
      if (std::regex_match(one.name, is_word)) {
        EXPECT_TRUE(fenced) << one.name << " at " << std::hex << one.address;
        ++published;
        continue;  // one fence suffices for all words
      }
      fenced = false;
    }
    EXPECT_GE(published, 6)
        << "of messages; of slots that were read; by each protocol, of calls that "
           "do not fit: the peer, the end";
  });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1) tutti::image = argv[1];
  return RUN_ALL_TESTS();
}
