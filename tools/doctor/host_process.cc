#include "tools/doctor/host_process.h"

#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tools/doctor/facts.h"
#include "tools/doctor/local.h"
#include "tools/doctor/reach.h"
#include "tools/doctor/wall_clock.h"
#include "tools/launcher/protocol.h"

namespace tutti::tool {

namespace {

class HostProcess {
 public:
  int run() {
    LineReader lines(STDIN_FILENO);
    while (connected_ && lines.read([this](const std::string& line) { obey(line); })) {
    }
    return 0;
  }

 private:
  void obey(const std::string& line) {
    const Json order = Json::parse(line);
    const std::string what = order.at("do");
    Json answer = Json::object();
    if (what == "facts") {
      answer = look(order);
    } else if (what == "clock") {
      answer["ns"] = wall_clock_ns();
    } else if (what == "listen") {
      answer = listen(order);
    } else if (what == "reach") {
      answer = reach(order);
    }
    answer["answer"] = what;
    connected_ = connected_ && send_line(STDOUT_FILENO, answer);
  }

  Json look(const Json& order) {
    Question question{
        .name = order.at("name"),
        .ranks = order.at("ranks"),
        .nonce = order.at("nonce"),
        .environment = order.at("environment").get<std::map<std::string, std::string>>()};
    nonce_ = question.nonce;
    const HostFacts facts = look_at_this_host(question);
    interfaces_ = facts.interfaces;
    return to_json(facts);
  }

  Json listen(const Json& order) {
    Json rails = Json::array();
    std::string problem;
    try {
      const std::vector<std::string> addresses =
          addresses_of_ranks(order.at("host"), order.at("towards"));
      listeners_.emplace(addresses, interfaces_, order.at("port").get<uint16_t>(), nonce_);
      for (const Rail& rail : listeners_->rails()) rails.push_back(to_json(rail));
    } catch (const Error& error) {
      problem = error.what();
    }
    return {{"rails", rails}, {"problem", problem}};
  }

  Json reach(const Json& order) const {
    std::vector<Target> targets;
    for (const Json& one : order.at("targets")) {
      targets.push_back({.host = one.at("host"),
                         .rail = one.at("rail"),
                         .there = rail_from_json(one.at("there")),
                         .own = one.at("own")});
    }
    Json reaches = Json::array();
    for (const Reach& one : try_all(order.at("from"), targets, interfaces_, nonce_)) {
      reaches.push_back(to_json(one));
    }
    return Json{{"reaches", reaches}};
  }

  bool connected_ = true;
  std::string nonce_;
  std::vector<Interface> interfaces_;
  std::optional<Listeners> listeners_;
};

}  // namespace

int run_doctor_host() {
  // If the doctor has ended, writes fail and the process exits.
  std::signal(SIGPIPE, SIG_IGN);
  return HostProcess().run();
}

}  // namespace tutti::tool
