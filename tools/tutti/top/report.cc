#include "tools/tutti/top/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/file_text.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti::tool {

namespace {

std::string shown(const Json& text) { return printable(text.get<std::string>(), 400); }

std::string whom(const Json& report) {
  return cat("rank ", report["rank"].get<int>(), " (", shown(report["host"]), ", pid ",
             report["pid"].get<int64_t>(), ")");
}

// Returns the sequence number of the last call that the rank started, or 0 if there was none.
int64_t last_call(const Json& report) {
  const Json& recorder = report["recorder"];
  return recorder.empty() ? 0 : recorder.back()["call"].get<int64_t>();
}

std::vector<int> silent_ranks(const std::vector<Json>& reports) {
  std::set<int> silent;
  for (const int rank : reports.front()["members"].get<std::vector<int>>()) silent.insert(rank);
  for (const Json& report : reports) silent.erase(report["rank"].get<int>());
  return {silent.begin(), silent.end()};
}

std::vector<int> waited_for_by_others(const std::vector<Json>& reports) {
  std::set<int> ranks;
  for (const Json& report : reports) {
    for (const Json& rank : report["waits_for"]) ranks.insert(rank.get<int>());
  }
  for (const Json& report : reports) {
    if (!report["waits_for"].empty()) ranks.erase(report["rank"].get<int>());
  }
  return {ranks.begin(), ranks.end()};
}

// Guesses the cause of the abort from the reports of one communicator. Causes that are certain take
// precedence.
std::string guess(const std::vector<Json>& reports) {
  const auto code = reports.front()["error"]["code"].get<std::string>();
  if (code == "mismatch") return "the ranks call different operations: see the error";
  if (const std::vector<int> silent = silent_ranks(reports); !silent.empty()) {
    return cat("rank ", rank_ranges(silent),
               " wrote no report and the others waited for it: it exited, was killed or stopped, "
               "or its host was lost");
  }
  const auto [first, last] = std::ranges::minmax_element(reports, {}, last_call);
  if (last_call(*first) < last_call(*last)) {
    return cat(whom(*first), " was at call ", last_call(*first), " when others were at call ",
               last_call(*last), ": it was busy outside of Tutti, or makes fewer calls");
  }
  if (const std::vector<int> slow = waited_for_by_others(reports); !slow.empty()) {
    return cat("all ranks waited, directly or indirectly, for rank ", rank_ranges(slow),
               ", which waited for no rank: it or its network was slow");
  }
  const int named = reports.front()["error"]["rank"].get<int>();
  return named < 0 ? "see the error" : cat("the error names rank ", named);
}

std::map<std::string, std::vector<Json>> by_communicator(const Json& reports) {
  std::map<std::string, std::vector<Json>> found;
  for (const Json& report : reports) {
    found[report["communicator"].get<std::string>()].push_back(report);
  }
  for (auto& [communicator, list] : found) {
    std::ranges::stable_sort(list, {},
                             [](const Json& report) { return report["rank"].get<int>(); });
  }
  return found;
}

std::string line_of(const Json& report) {
  std::string text = cat("  ", whom(report), ": ");
  if (report["current"].is_null()) {
    const Json& recorder = report["recorder"];
    text += recorder.empty() ? std::string("had made no call")
                             : cat("in no call; the last was call ", last_call(report), ", ",
                                   shown(recorder.back()["what"]));
  } else {
    text += cat("in ", shown(report["current"]), ", for ",
                std::round(report["current_seconds"].get<double>() * 1000) / 1000, " s");
  }
  const auto waits_for = report["waits_for"].get<std::vector<int>>();
  if (!waits_for.empty()) text += cat("; waited for rank ", rank_ranges(waits_for));
  return text + '\n';
}

// Throws if a required member is missing.
void require_all(const Json& report) {
  static_cast<void>(line_of(report));
  for (const char* const name : {"job", "communicator"}) {
    static_cast<void>(report[name].get<std::string>());
  }
  static_cast<void>(report["members"].get<std::vector<int>>());
  for (const char* const name : {"code", "text"}) {
    static_cast<void>(report["error"][name].get<std::string>());
  }
  static_cast<void>(report["error"]["rank"].get<int>());
}

using FileTime = std::filesystem::file_time_type;

// Returns the files and their modification times, in the order of their names.
std::map<std::string, FileTime> files_in(const std::string& directory, FileTime since) {
  std::map<std::string, FileTime> files;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(directory, problem)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("rank-") || !name.ends_with(".json")) continue;
    const FileTime written = entry.last_write_time(problem);
    if (!problem && written >= since) files[entry.path()] = written;
  }
  return files;
}

// One start of a job, with its reports.
struct Job {
  FileTime last_written = FileTime::min();
  Json reports = Json::array();
};

}  // namespace

Json read_reports(const std::string& directory, std::filesystem::file_time_type since) {
  std::map<std::string, Job> jobs;
  std::vector<std::string> skipped;
  for (const auto& [path, written] : files_in(directory, since)) {
    try {
      Json report = Json::parse(file_text(path, FileKind::report));
      require_all(report);
      Job& job = jobs[report["job"].get<std::string>()];
      job.last_written = std::max(job.last_written, written);
      job.reports.push_back(std::move(report));
    } catch (const Error& error) {
      skipped.push_back(cat(path, ": ", error.what()));
    }
  }
  if (jobs.empty()) {
    throw Error(ErrorCode::invalid_argument, cat("no rank has left a report in ", directory),
                {.where = "--report",
                 .cause = skipped.empty() ? "" : cat("a file is malformed: ", skipped.front()),
                 .remedy = "start the job with TUTTI_REPORT set to an existing directory"});
  }
  const auto& [name, job] = *std::ranges::max_element(
      jobs, {}, [](const auto& entry) { return entry.second.last_written; });
  Json guesses = Json::array();
  for (const auto& [communicator, list] : by_communicator(job.reports)) {
    guesses.push_back({{"communicator", communicator}, {"guess", guess(list)}});
  }
  return {{"job", name},
          {"other_jobs", jobs.size() - 1},
          {"skipped", skipped},
          {"reports", job.reports},
          {"guesses", std::move(guesses)}};
}

std::string to_text(const Json& reports) {
  std::string text;
  for (const Json& skipped : reports["skipped"]) text += cat("Skipped ", shown(skipped), "\n");
  if (const int others = reports["other_jobs"].get<int>(); others > 0) {
    text += cat("This is the latest job; ", others, " earlier jobs are not shown.\n");
  }
  const auto communicators = by_communicator(reports["reports"]);
  for (const Json& guess : reports["guesses"]) {
    const std::vector<Json>& list = communicators.at(guess["communicator"].get<std::string>());
    const Json& first = list.front();
    text += cat("Communicator ", shown(guess["communicator"]), " of ", first["members"].size(),
                " ranks was aborted: ", shown(first["error"]["text"]), "\n");
    for (const Json& report : list) text += line_of(report);
    const std::vector<int> silent = silent_ranks(list);
    if (!silent.empty()) text += cat("  rank ", rank_ranges(silent), ": no report\n");
    text += cat("Likely: ", guess["guess"].get<std::string>(), "\n\n");
  }
  return text;
}

int show_report(const std::string& directory, bool json) {
  const Json reports = read_reports(directory);
  std::cout << (json ? reports.dump(2, Json::BadText::replace) + '\n' : to_text(reports));
  return 0;
}

}  // namespace tutti::tool
