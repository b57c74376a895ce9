#include "tools/launcher/agent_process.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "base/settings.h"
#include "tools/launcher/agents.h"
#include "tools/launcher/child.h"
#include "tools/launcher/event_loop.h"
#include "tools/launcher/protocol.h"
#include "tools/launcher/signals.h"

namespace tutti::tool {

namespace {

// Forwards the agents' reports to the process that started this one.
class Reporter : public AgentSink {
 public:
  void on_ready() {
    // Ends a line first, because a login script may have printed an incomplete one.
    connected_ = connected_ && ::write(STDOUT_FILENO, "\n", 1) == 1;
    report({{"event", "ready"}});
  }
  void on_listening(const std::string& address, uint16_t port) override {
    report({{"event", "listening"}, {"address", address}, {"port", port}});
  }
  void on_output(int rank, Stream stream, std::string_view bytes, bool end) override {
    report({{"event", "output"},
            {"rank", rank},
            {"stream", static_cast<int>(stream)},
            {"bytes", to_json_text(bytes)},
            {"end", end}});
  }
  void on_exit(const RankExit& exit) override {
    Json event = to_json(exit);
    event["event"] = "exit";
    report(event);
  }
  void on_failure(const std::string& text, int code, const std::vector<int>& lost) override {
    report({{"event", "failure"}, {"text", to_json_text(text)}, {"code", code}, {"lost", lost}});
  }
  void on_finished() { report({{"event", "finished"}}); }

  bool connected() const { return connected_; }

 private:
  void report(const Json& event) { connected_ = connected_ && send_line(STDOUT_FILENO, event); }
  bool connected_ = true;
};

class AgentProcess {
 public:
  int run() {
    // A signal ends the agent and its ranks, as the end of the input does. SIGPIPE does not,
    // because failed writes report the error.
    SignalInbox signals({SIGINT, SIGTERM, SIGHUP, SIGPIPE});
    loop_.watch(signals.fd(), [&] {
      for (int number : signals.take()) connected_ = connected_ && number == SIGPIPE;
    });
    loop_.watch(STDIN_FILENO, [this] {
      connected_ = connected_ && lines_.read([this](const std::string& line) { obey(line); });
    });
    while (connected_ && reporter_.connected() && !(started_ && agents_->finished())) {
      loop_.run_once(std::chrono::milliseconds(100));
      if (agents_) agents_->look_at_clock();
    }
    agents_.reset();
    reporter_.on_finished();
    return 0;
  }

 private:
  void obey(const std::string& line) {
    try {
      carry_out(Json::parse(line));
    } catch (const StartError& error) {  // thrown if the remote shell is missing
      reporter_.on_failure(error.what(), error.exit_code(), {});
      connected_ = false;
    } catch (const std::exception& error) {
      reporter_.on_failure(error.what(), 1, {});
      connected_ = false;
    }
  }

  void carry_out(const Json& order) {
    const std::string what = order.at("do");
    if (what == "job") {
      take_job(job_from_json(order));
    } else if (!agents_) {
      throw Error(ErrorCode::internal,
                  "protocol error: the agent received an order before its job");
    } else if (what == "listen") {
      agents_->listen();
    } else if (what == "start") {
      agents_->start(order.at("address"), order.at("port"));
      started_ = true;
    } else if (what == "tell") {
      agents_->tell(exit_from_json(order));
    } else if (what == "signal") {
      agents_->signal_ranks(order.at("number"));
    }
  }

  void take_job(HostJob job) {
    // Must precede the first use of settings, which come from the launcher's environment.
    for (const auto& [name, value] : job.environment) ::setenv(name.c_str(), value.c_str(), 1);
    agents_.emplace(loop_, reporter_);
    agents_->add_local(std::move(job));
    reporter_.on_ready();
  }

  EventLoop loop_;
  Reporter reporter_;
  LineReader lines_{STDIN_FILENO};
  std::optional<Agents> agents_;
  bool started_ = false;
  bool connected_ = true;
};

}  // namespace

int run_agent() { return AgentProcess().run(); }

}  // namespace tutti::tool
