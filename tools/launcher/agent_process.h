// The agent of one host, as a process: what `tutti agent` runs. It reads its orders from standard
// input and reports on standard output (protocol.h). The end of its input is the end of the job.
#pragma once

namespace tutti::tool {

// Returns the exit code.
int run_agent();

}  // namespace tutti::tool
