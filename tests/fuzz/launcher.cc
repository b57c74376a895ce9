// Fuzzes messages of the launcher to its ranks ('p' before the input: lines of its pipe), and
// between the launcher and the agents of other hosts (any other first byte: lines of JSON).
#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "tests/fuzz/target.h"
#include "tools/launcher/protocol.h"
#include "transport/bootstrap/discovery/launcher_pipe.h"

namespace tutti {

namespace {

// Returns the read end of a closed pipe that contains the text.
Fd pipe_with(std::string_view text) {
  int ends[2];
  fuzz::require(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "there is a pipe");
  Fd read(ends[0]);
  const Fd write(ends[1]);
  [[maybe_unused]] const ssize_t written = ::write(write.get(), text.data(), text.size());
  return read;
}

void hear_pipe(std::string_view text) {
  const Fd end = pipe_with(text);
  bootstrap::LauncherPipe pipe(end.get());
  while (pipe.open()) {
    pipe.read([](const bootstrap::RankEnd& rank_end) {
      fuzz::require(!rank_end.text().empty(), "an end has a text");
      fuzz::require(bootstrap::death_while_joining(rank_end).what()[0] != 0, "so has an error");
    });
  }
}

void hear_line(const std::string& line) {
  const Json json = Json::parse(line);
  if (json.contains("do") && json.at("do") == "job") {
    const tool::HostJob job = tool::job_from_json(json);
    const Json written = tool::to_json(job);
    fuzz::require(tool::to_json(tool::job_from_json(written)) == written,
                  "a job is read as it was written");
  } else if (json.contains("bytes")) {
    const std::string bytes = tool::from_json_text(json.at("bytes"));
    fuzz::require(tool::from_json_text(tool::to_json_text(bytes)) == bytes,
                  "bytes are read as they were written");
  } else {
    tool::to_json(tool::exit_from_json(json));
  }
}

}  // namespace

}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  fuzz::Choices choices(fuzz::text_of(data, size));
  if (choices.byte() == 'p') {
    hear_pipe(choices.rest());
    return 0;
  }
  const Fd end = pipe_with(choices.rest());
  tool::LineReader lines(end.get());
  while (lines.read([](const std::string& line) { fuzz::take("", [&] { hear_line(line); }); })) {
  }
  return 0;
}
