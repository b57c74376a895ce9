// The protocol between the launcher and the agent of another host: JSON objects, one per line, over
// the agent's standard input and output.
//
//   launcher to agent                              agent to launcher
//   {"do":"job", ... HostJob}     first            {"event":"ready"}    first: the job has arrived
//   {"do":"listen"}               rank 0's host    {"event":"listening","address":A,"port":P}
//   {"event":"output","rank":R,"stream":S,"bytes":B,"end":E}
//   {"do":"start","address":A,"port":P}            {"event":"exit", ... RankExit}
//   {"do":"tell", ... RankExit}                    {"event":"failure","text":T,"code":C,"lost":[R]}
//   {"do":"signal","number":N}                     {"event":"finished"}   last
//
// Texts may contain arbitrary bytes, but JSON can only contain Unicode. Each byte is therefore sent
// as the character of the same number (Latin-1).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "tools/launcher/agent.h"

namespace tutti::tool {

std::string to_json_text(std::string_view bytes);
// Returns the bytes of a text. Throws Error(invalid_argument) for a text that to_json_text() cannot
// have produced.
std::string from_json_text(const std::string& text);

Json to_json(const HostJob& job);
HostJob job_from_json(const Json& json);
Json to_json(const RankExit& exit);
RankExit exit_from_json(const Json& json);

// Writes the object and a newline. Returns false if the other side has closed the connection.
bool send_line(int fd, const Json& json);

// Reads a descriptor line by line.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}
  // Reads once (blocks if there is no input) and calls on_line(line) for each complete line.
  // Returns false at the end of the input.
  bool read(const std::function<void(const std::string& line)>& on_line);

 private:
  int fd_;
  std::string pending_;
};

}  // namespace tutti::tool
