// The agent process of one host (`tutti agent`). It reads orders from standard input and reports on
// standard output (protocol.h). The end of its input ends the job.
#pragma once

namespace tutti::tool {

// Returns the exit code.
int run_agent();

}  // namespace tutti::tool
