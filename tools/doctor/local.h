// This host's facts, found without a network and without a job.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tools/doctor/facts.h"

namespace tutti::tool {

// What a host is told before it looks.
struct Question {
  std::string name;  // as the user wrote it
  int ranks = 1;     // that are to run there
  std::string nonce;
  // The doctor's own settings, which `tutti run` hands to all hosts; but no token.
  std::map<std::string, std::string> environment;
};

// Takes over the question's environment, in which what is the host's own token stays. Never throws
// because of what it finds: that is in the facts.
HostFacts look_at_this_host(const Question& question);

// The settings that come from this process's environment, as in Question.
std::map<std::string, std::string> settings_to_hand_on();

// Of this process's settings. Equal for equal tokens and nonces, of no use to whoever reads it.
TokenFacts look_at_token(std::string_view nonce);

}  // namespace tutti::tool
