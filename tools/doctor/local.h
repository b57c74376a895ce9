// Finds this host's facts without a network and without a job.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tools/doctor/facts.h"

namespace tutti::tool {

// A question of the doctor to a host.
struct Question {
  std::string name;  // the host's name as the user wrote it
  int ranks = 1;     // number of ranks planned on this host
  std::string nonce;
  // The settings in the environment of the doctor's own process, except the token. `tutti run`
  // passes the same settings to all hosts.
  std::map<std::string, std::string> environment;
};

// Finds the facts. Uses the question's environment, but this host's own token if it has one.
// Problems are reported in the facts, never thrown.
HostFacts look_at_this_host(const Question& question);

// Returns the settings that are in this process's environment, except TUTTI_TOKEN, for
// Question::environment.
std::map<std::string, std::string> settings_to_hand_on();

// Returns facts about this process's token. Fingerprints are equal for equal tokens and nonces and
// reveal nothing about the token.
TokenFacts look_at_token(std::string_view nonce);

}  // namespace tutti::tool
