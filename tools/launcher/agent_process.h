// The agent process of one host (`tutti agent`). It reads orders from standard input and reports on
// standard output (protocol.h). The end of its input ends the job.
#pragma once

namespace tutti::tool {

// Runs the agent until the job has ended, and returns its exit code.
int run_agent();

}  // namespace tutti::tool
