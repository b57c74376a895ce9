// Creates two hosts for a test: network namespaces with a cable between them. Tests are skipped if
// this process may not create namespaces.
#pragma once

#include <string>

#include "tests/tools/cli/cli.h"

namespace tutti::tool {

Result shell(const std::string& script);

class TwoHosts : public Cli {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Starts the command on `ranks` ranks, half of them on each host.
  Process start_on_both(int ranks, const Words& command,
                        Process::Environment environment = {}) const;
  Process start_tutti_on_both(int ranks, const Words& arguments) const;

  std::string a_;
  std::string b_;
};

}  // namespace tutti::tool
