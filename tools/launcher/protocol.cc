#include "tools/launcher/protocol.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace tutti::tool {

std::string to_json_text(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char byte : bytes) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x80) {
      text += byte;
    } else {  // UTF-8 of a character from U+0080 to U+00FF
      text += static_cast<char>(0xc0 | (code >> 6));
      text += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  return text;
}

std::string from_json_text(const std::string& text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto code = static_cast<unsigned char>(text[i]);
    if (code < 0x80) {
      bytes += text[i];
    } else if ((code == 0xc2 || code == 0xc3) && i + 1 < text.size()) {
      bytes += static_cast<char>(((code & 0x03) << 6) | (text[++i] & 0x3f));
    } else {
      throw Error(ErrorCode::invalid_argument,
                  "protocol error: malformed text in the launcher's protocol");
    }
  }
  return bytes;
}

namespace {

// Reads the members that differ between the hosts of a tree. The other members of `job` apply to
// all hosts below it.
void read_hosts(const Json& json, HostJob& job) {
  for (const auto& one : json.at("below")) {
    HostJob below = job;
    below.below.clear();
    read_hosts(one, below);
    job.below.push_back(std::move(below));
  }
  for (const auto& [name, value] : json.at("own").items()) {
    job.environment[from_json_text(name)] = from_json_text(value);
  }
  job.host = from_json_text(json.at("host"));
  job.display = from_json_text(json.at("display"));
  job.ranks = json.at("ranks").get<std::vector<int>>();
}

// Writes the members that differ between hosts. The other members are sent once for all hosts.
Json hosts_to_json(const HostJob& job) {
  Json below = Json::array();
  for (const HostJob& one : job.below) below.push_back(hosts_to_json(one));
  Json own = Json::object();
  for (const std::string_view name : kOfOneHost) {
    const auto found = job.environment.find(std::string(name));
    if (found != job.environment.end()) own[found->first] = to_json_text(found->second);
  }
  return {{"host", to_json_text(job.host)},
          {"display", to_json_text(job.display)},
          {"ranks", job.ranks},
          {"own", own},
          {"below", below}};
}

}  // namespace

Json to_json(const HostJob& job) {
  Json command = Json::array();
  for (const std::string& word : job.command) command.push_back(to_json_text(word));
  Json environment = Json::object();
  for (const auto& [name, value] : job.environment) {
    if (std::ranges::count(kOfOneHost, name) > 0) continue;
    environment[to_json_text(name)] = to_json_text(value);
  }
  Json json = hosts_to_json(job);
  json["world_size"] = job.world_size;
  json["command"] = command;
  json["environment"] = environment;
  json["directory"] = to_json_text(job.directory);
  return json;
}

HostJob job_from_json(const Json& json) {
  HostJob job;
  job.world_size = json.at("world_size");
  job.directory = from_json_text(json.at("directory"));
  for (const auto& word : json.at("command")) job.command.push_back(from_json_text(word));
  for (const auto& [name, value] : json.at("environment").items()) {
    job.environment[from_json_text(name)] = from_json_text(value);
  }
  read_hosts(json, job);
  return job;
}

Json to_json(const RankExit& exit) {
  return {{"rank", exit.rank},
          {"pid", exit.pid},
          {"signal", exit.signal},
          {"code", exit.code},
          {"why", to_json_text(exit.why)}};
}

RankExit exit_from_json(const Json& json) {
  return {json.at("rank"), json.at("pid"), json.at("signal"), json.at("code"),
          from_json_text(json.at("why"))};
}

bool send_line(int fd, const Json& json) {
  const std::string line = json.dump() + "\n";
  std::string_view rest(line);
  while (!rest.empty()) {
    const ssize_t written = ::write(fd, rest.data(), rest.size());
    if (written >= 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool LineReader::read(const std::function<void(const std::string& line)>& on_line) {
  char buffer[64 * 1024];
  const ssize_t got = ::read(fd_, buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (got <= 0) return false;
  pending_.append(buffer, static_cast<size_t>(got));
  size_t begin = 0;
  for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    on_line(pending_.substr(begin, end - begin));
  }
  pending_.erase(0, begin);
  return true;
}

}  // namespace tutti::tool
