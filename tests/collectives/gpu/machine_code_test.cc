// What the compiler made of the kernels: the machine code of the fat binary that is linked into the
// library, for each GPU that it has code for, disassembled by CUDA's cuobjdump. Such things no
// emulation shows. Skipped where one of the two is not there.
//
//     LDG.E.128.STRONG.SYS R4, [R2]      a load of 16 bytes, whole and seen by all GPUs
//     MEMBAR.ALL.SYS                     a fence among all GPUs and the host
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/process.h"

namespace tutti {
namespace {

using testing::Process;
using testing::Result;

constexpr int kMostRegisters = 128;  // 512 threads of a block share 65536
constexpr size_t kKernels = 18;      // one for each type
constexpr const char* kArchitectures[] = {"sm_80", "sm_90", "sm_100"};

std::string image;  // the fat binary's path

struct Kernel {
  int registers = -1;
  int stack = -1;
  int spilled = -1;                       // bytes of local memory
  std::vector<std::string> instructions;  // without their operands, in order

  int count(const std::string& pattern) const {
    const std::regex matches(pattern);
    int found = 0;
    for (const std::string& instruction : instructions) {
      found += std::regex_match(instruction, matches) ? 1 : 0;
    }
    return found;
  }
};

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

// "        /*0040*/                   @P0 LDG.E R2, [R4] ;   /* 0x... */" and much besides.
std::string instruction_of(const std::string& line) {
  size_t at = line.find("*/");
  if (at == std::string::npos || line.find(';', at) == std::string::npos) return "";
  at = line.find_first_not_of(' ', at + 2);
  if (line[at] == '@') at = line.find_first_not_of(' ', line.find(' ', at));
  return line.substr(at, line.find_first_of(" ;", at) - at);
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
    const std::string instruction = instruction_of(line);
    if (kernel != nullptr && !instruction.empty()) kernel->instructions.push_back(instruction);
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
  // `check` of each kernel.
  template <typename Check>
  static void of_each(const Check& check) {
    for (const auto& [name, kernel] : all_kernels()) {
      SCOPED_TRACE(name.first + " " + name.second);
      check(kernel);
    }
  }
};

TEST_F(MachineCode, IsThereForEachTypeAndGpu) {
  std::map<std::string, std::set<std::string>> by_architecture;
  for (const auto& [name, kernel] : all_kernels()) {
    by_architecture[name.first].insert(name.second);
    EXPECT_GT(kernel.instructions.size(), 100u) << name.first << ' ' << name.second;
    std::printf("%-7s %-20s %3d registers, %6zu instructions\n", name.first.c_str(),
                name.second.c_str(), kernel.registers, kernel.instructions.size());
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
  });
}

TEST_F(MachineCode, MovesSixteenBytesAtATime) {
  of_each([](const Kernel& kernel) {
    EXPECT_GT(kernel.count("LDG?\\.E\\.128.*"), kernel.count("LDG?\\.E\\.128.*STRONG.*"))
        << "beside those of lines";
    EXPECT_GT(kernel.count("STG?\\.E\\.128.*"), kernel.count("STG?\\.E\\.128.*STRONG.*"));
  });
}

// A line is data and flag: in two stores, a peer could see the flag without the data.
TEST_F(MachineCode, NeverSplitsALine) {
  of_each([](const Kernel& kernel) {
    EXPECT_GT(kernel.count("STG?\\.E\\.128\\.STRONG\\.SYS"), 0);
    EXPECT_GT(kernel.count("LDG?\\.E\\.128\\.STRONG\\.SYS"), 0);
    // What is left are words of 8 bytes: counters, signatures, the word that ends kernels.
    EXPECT_EQ(kernel.count("(ST|LD)G?\\.E(\\.[SU](8|16))?\\.STRONG.*"), 0);
  });
}

TEST_F(MachineCode, SynchronizesWithAllGpusAndTheHost) {
  of_each([](const Kernel& kernel) {
    EXPECT_EQ(kernel.count(".*STRONG\\.(GPU|SM|CTA).*"), 0);
    EXPECT_EQ(kernel.count("MEMBAR.*\\.(GPU|VC)"), 0);
    EXPECT_GT(kernel.count("CCTL\\.IVALL"), 0) << "an acquire drops what the caches hold";
  });
}

// A release is a fence and a store: no other store that peers look at comes between.
TEST_F(MachineCode, FencesBeforeEachWordThatIsPublished) {
  of_each([](const Kernel& kernel) {
    bool fenced = false;
    int published = 0;
    for (const std::string& instruction : kernel.instructions) {
      if (instruction.starts_with("MEMBAR") && instruction.ends_with(".SYS")) fenced = true;
      if (!instruction.starts_with("ST") || instruction.find("STRONG") == std::string::npos)
        continue;
      if (instruction.find(".128") != std::string::npos) continue;
      EXPECT_TRUE(fenced) << instruction;
      fenced = false;
      ++published;
    }
    EXPECT_GE(published, 2) << "of messages, and of slots that were read";
  });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1) tutti::image = argv[1];
  return RUN_ALL_TESTS();
}
