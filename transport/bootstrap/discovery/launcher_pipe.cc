#include "transport/bootstrap/discovery/launcher_pipe.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>

#include "base/text.h"

namespace tutti::bootstrap {

bool RankEnd::by_itself() const { return !by_signal || value == SIGABRT; }

std::string RankEnd::text() const {
  if (!by_signal) return cat("ended with exit code ", value, " without leaving the job");
  const char* name = ::sigdescr_np(value);
  return cat("was killed by signal ", value, name == nullptr ? "" : cat(" (", name, ")"),
             why.empty() ? "" : " ", why);
}

Error death_while_joining(const RankEnd& end) {
  return Error(ErrorCode::rank_died,
               cat("rank ", end.rank, " (pid ", end.pid, ") ", end.text(),
                   ", before all ranks had connected"),
               {.remedy = "check the output of that rank", .rank = end.rank});
}

void LauncherPipe::watch(PollSet& set, const std::function<void(const RankEnd&)>& on_end) {
  if (open()) set.add(fd_, POLLIN, [this, on_end](short) { read(on_end); });
}

void LauncherPipe::read(const std::function<void(const RankEnd&)>& on_end) {
  std::array<char, 4096> block;
  const ssize_t got = ::read(fd_, block.data(), block.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {
    fd_ = -1;  // the launcher is gone; the links still report deaths
    return;
  }
  incoming_.append(block.data(), static_cast<size_t>(got));
  for (size_t end = incoming_.find('\n'); end != std::string::npos; end = incoming_.find('\n')) {
    std::istringstream line(incoming_.substr(0, end));
    incoming_.erase(0, end + 1);
    std::string kind;
    RankEnd rank_end;
    line >> kind >> rank_end.rank >> rank_end.pid >> rank_end.value;
    if (!line || (kind != "exit" && kind != "signal")) continue;
    rank_end.by_signal = kind == "signal";
    std::getline(line >> std::ws, rank_end.why);
    on_end(rank_end);
  }
}

}  // namespace tutti::bootstrap
