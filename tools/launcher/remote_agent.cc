#include "tools/launcher/remote_agent.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "base/settings.h"
#include "base/text.h"
#include "tools/launcher/child.h"
#include "tools/launcher/remote_shell.h"

namespace tutti::tool {

namespace {

// Time for a remote shell to exit once its agent has finished.
constexpr std::chrono::milliseconds kFarewell{1000};
// After this time without an answer from the agent, the launcher prints a message.
constexpr std::chrono::seconds kPatience{5};

void say(const std::string& text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

// Returns the event in a line; nothing for lines that are not the agent's, such as a greeting of
// the remote shell.
std::optional<Json> event_in(const std::string& line) {
  try {
    Json json = Json::parse(line);
    if (json.contains("event")) return json;
  } catch (const Error&) {
  }
  return std::nullopt;
}

void add_ranks(const HostJob& job, std::set<int>& ranks) {
  ranks.insert(job.ranks.begin(), job.ranks.end());
  for (const HostJob& below : job.below) add_ranks(below, ranks);
}

}  // namespace

RemoteAgent::RemoteAgent(EventLoop& loop, AgentSink& sink, const HostJob& job)
    : loop_(loop),
      sink_(sink),
      host_(job.host),
      shell_(settings().get_string("TUTTI_RSH")),
      is_alone_(job.below.empty()),
      say_at_(Deadline::after(kPatience)),
      begin_by_(Deadline::after(settings().get_duration("TUTTI_INIT_TIMEOUT"))) {
  Pipe to = make_pipe();
  Pipe from = make_pipe();
  ChildSpec spec;
  spec.command = remote_command(job.host, {"agent"});
  spec.in = to.read.get();
  spec.out = from.write.get();
  // In a separate process group the terminal's Ctrl-C does not end the connection to the agent.
  pid_ = start_child(spec);
  to_ = std::move(to.write);
  from_ = std::move(from.read);
  lines_ = LineReader(from_.get());
  Json description = to_json(job);
  description["do"] = "job";
  add_ranks(job, ranks_);
  send_line(to_.get(), description);
  loop_.watch(from_.get(), [this] { on_readable(); });
}

RemoteAgent::~RemoteAgent() {
  to_.reset();
  if (from_) loop_.unwatch(from_.get());
  from_.reset();
  if (pid_ >= 0) wait_for_child(pid_, kFarewell);
}

// Ignores a failed send: the end of the agent's output reports it.
void RemoteAgent::listen() { send_line(to_.get(), {{"do", "listen"}}); }

void RemoteAgent::start(const std::string& master_address, uint16_t master_port) {
  send_line(to_.get(), {{"do", "start"}, {"address", master_address}, {"port", master_port}});
}

void RemoteAgent::tell(const RankExit& exit) {
  Json message = to_json(exit);
  message["do"] = "tell";
  send_line(to_.get(), message);
}

void RemoteAgent::signal_ranks(int number) {
  send_line(to_.get(), {{"do", "signal"}, {"number", number}});
}

void RemoteAgent::on_readable() {
  const bool open = lines_.read([this](const std::string& line) { on_line(line); });
  if (!open) on_lost();
}

void RemoteAgent::on_line(const std::string& line) {
  if (const std::optional<Json> event = event_in(line)) {
    has_begun_ = true;
    on_event(*event);
  } else if (!line.empty()) {  // a greeting of the remote shell
    say(cat("[", host_, "] ", printable(line, 400), "\n"));
  }
}

void RemoteAgent::look_at_clock() {
  if (has_begun_ || finished_) return;
  if (say_at_.passed()) {
    say_at_ = Deadline::never();
    say(cat("tutti run: ", host_, ": `", shell_, "` has not started the agent for ",
            kPatience.count(), " s; it is still connecting or the host does not answer\n"));
  }
  if (!begin_by_.passed()) return;
  ::kill(-pid_, SIGKILL);
  on_lost();
}

void RemoteAgent::on_event(const Json& event) {
  const std::string what = event.at("event");
  if (what == "listening") {
    sink_.on_listening(event.at("address"), event.at("port"));
  } else if (what == "output") {
    sink_.on_output(event.at("rank"), static_cast<Stream>(event.at("stream").get<int>()),
                    from_json_text(event.at("bytes")), event.at("end"));
  } else if (what == "exit") {
    const RankExit exit = exit_from_json(event);
    ranks_.erase(exit.rank);
    sink_.on_exit(exit);
  } else if (what == "failure") {
    const auto lost = event.at("lost").get<std::vector<int>>();
    for (const int rank : lost) ranks_.erase(rank);
    sink_.on_failure(from_json_text(event.at("text")), event.at("code"), lost);
  } else if (what == "finished") {
    finished_ = true;
  }
}

void RemoteAgent::on_lost() {
  loop_.unwatch(from_.get());
  from_.reset();
  to_.reset();
  const int code = wait_for_child(pid_, kFarewell);
  pid_ = -1;
  if (finished_) return;
  finished_ = true;
  ErrorDetail detail;
  if (!has_begun_ && begin_by_.passed()) {
    detail = {.cause = "the host did not answer within TUTTI_INIT_TIMEOUT",
              .remedy = cat("try `", shell_, " ", host_, " true`, or increase TUTTI_INIT_TIMEOUT")};
  } else if (has_begun_) {
    detail.cause = "the host or the connection to it went down, which ends its ranks";
  } else {
    detail.cause = "the remote shell cannot reach the host, or this program is not installed there";
    detail.remedy =
        cat("try `", shell_, " ", host_, " ", quoted_for_shell(this_program()), " --version`");
  }
  const Error error(ErrorCode::connection_lost,
                    cat("lost host ", host_, is_alone_ ? "" : " and the hosts reached through it",
                        ": `", shell_, "` ended with code ", code),
                    detail);
  sink_.on_failure(
      error.what(), code != 0 ? code : 1,
      has_begun_ ? std::vector<int>(ranks_.begin(), ranks_.end()) : std::vector<int>());
}

}  // namespace tutti::tool
