// Runs a fuzz target without libFuzzer and accepts some of its flags:
//
//   TARGET [-runs=N] [-seed=N] [-rss_limit_mb=N] PATH...
//
// A path is an input or a folder of inputs. All inputs are run unchanged first, then N mutations of
// them. An input that crashes the process is written to a file, which can be passed as a path
// afterwards.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/parse_number.h"
#include "base/processors.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz {
namespace {

constexpr size_t kLongest = 64 << 10;
constexpr double kMostSeconds = 6;  // limit of processor time for one input, also with sanitizers
constexpr int kSecondsBetweenLooks = 20;  // interval of the checks for an input that never ends

// Accessible to signal handlers until the process ends.
std::string& current = *new std::string;
uint64_t number = 0;
uint64_t number_at_last_look = 0;
uint64_t most_megabytes = 256;  // limit of the process's growth
std::string& finding_path = *new std::string;

void save_and_end(int signal) {
  const int file = ::open(finding_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  [[maybe_unused]] ssize_t ignored = ::write(file, current.data(), current.size());
  const auto say = [&ignored](std::string_view text) {
    ignored = ::write(STDERR_FILENO, text.data(), text.size());
  };
  say("the input is in ");
  say(finding_path);
  say("\n");
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void look_for_hang(int) {
  if (number == number_at_last_look) std::abort();
  number_at_last_look = number;
}

void watch() {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    ::signal(signal, save_and_end);
  }
  ::signal(SIGVTALRM, look_for_hang);
  const timeval time{.tv_sec = kSecondsBetweenLooks, .tv_usec = 0};
  const itimerval timer{.it_interval = time, .it_value = time};
  ::setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

double processor_seconds() {
  return std::chrono::duration<double>(tutti::processor_time()).count();
}

long most_kilobytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void run(std::string input) {
  static const long kilobytes_at_first = most_kilobytes();
  current = std::move(input);
  ++number;
  const double begin = processor_seconds();
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
  const double seconds = processor_seconds() - begin;
  const long kilobytes = most_kilobytes() - kilobytes_at_first;
  if (seconds > kMostSeconds) std::fprintf(stderr, "an input took %.1f s\n", seconds);
  const bool is_large = kilobytes >> 10 > static_cast<long>(most_megabytes);
  if (is_large) std::fprintf(stderr, "inputs took %ld KiB\n", kilobytes);
  if (seconds > kMostSeconds || is_large) std::abort();
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Reads the inputs in an order that does not depend on the file system.
std::vector<std::string> read_corpus(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.emplace_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry);
  }
  std::ranges::sort(files);
  std::vector<std::string> corpus;
  for (const auto& file : files) corpus.push_back(content_of(file).substr(0, kLongest));
  return corpus;
}

bool read_flag(std::string_view argument, std::string_view name, uint64_t& value) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  const auto number = parse_number<uint64_t>(argument);
  value = number.value_or(value);
  if (number) return true;
  std::fprintf(stderr, "no number behind %.*s\n", static_cast<int>(name.size()), name.data());
  std::exit(2);
}

int run_all(const std::string& name, std::span<char*> arguments) {
  uint64_t runs = 0;
  uint64_t seed = 1;
  std::vector<std::string> paths;
  for (const std::string_view argument : arguments) {
    if (read_flag(argument, "-runs=", runs) || read_flag(argument, "-seed=", seed) ||
        read_flag(argument, "-rss_limit_mb=", most_megabytes)) {
      continue;
    }
    paths.emplace_back(argument);
  }
  const std::vector<std::string> corpus = read_corpus(paths);
  if (corpus.empty()) {
    std::fprintf(stderr, "there are no inputs to begin with\n");
    return 2;
  }
  const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  finding_path = std::string(outputs == nullptr ? "/tmp" : outputs) + "/" + name + ".finding";
  std::printf("%s: seed %llu\n", name.c_str(), static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  watch();
  for (const std::string& input : corpus) run(input);
  Mutator mutator(corpus, seed, kLongest);
  for (uint64_t i = 0; i < runs; ++i) run(mutator.next());
  std::printf("%s: %zu inputs of the corpus and %llu others; %llu were taken, %llu refused\n",
              name.c_str(), corpus.size(), static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(counts().taken),
              static_cast<unsigned long long>(counts().refused));
  return 0;
}

}  // namespace
}  // namespace tutti::fuzz

// A memory error aborts the process, so that the input is written to a file. Freed memory does not
// count towards the limit.
extern "C" const char* __asan_default_options() {
  return "abort_on_error=1:handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2:"
         "quarantine_size_mb=16:max_allocation_size_mb=512";
}
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1"; }

int main(int argc, char** argv) {
  const std::string name = std::filesystem::path(argv[0]).filename();
  return tutti::fuzz::run_all(name, std::span(argv, static_cast<size_t>(argc)).subspan(1));
}
