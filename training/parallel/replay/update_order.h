// The order in which servers, or neighbours, applied what others sent: recorded while ranks train,
// and enforced when they train again (`--record FILE`, `--replay FILE`).
//
// A file has a line of JSON for each stretch of steps between two meetings of all ranks:
//
//   {"way":"async","run":"b1946ac92492d234","first":1,"last":16,"workers":2,
//    "servers":[[[0,0],[1,1],[0,2] ...] ...]}
//
// By server, [worker, clock] one after the other (clocks: servers/messages.h; of `adpsgd` ranks are
// servers, clocks are updates, and even ranks have none). All else that a run computes
// follows from this order and the run's settings, bit for bit.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace tutti::training {

struct AppliedPush {
  int64_t worker = 0;
  int64_t clock = 0;
  bool operator==(const AppliedPush&) const = default;
};

// By one server.
using UpdateOrder = std::vector<AppliedPush>;

struct StretchOrder {
  std::string way;    // text_of(SyncOptions)
  std::string run;    // SyncOptions::run; empty: it is not compared
  int64_t first = 0;  // steps, from 1
  int64_t last = 0;
  int64_t workers = 0;
  std::vector<UpdateOrder> servers;
};

// Writes a file, a stretch at a time.
class OrderRecorder {
 public:
  // Stretches in the file that end after step `done` are of a run that went another way from there:
  // they go; those before stay. Throws Error(system) where it cannot be written.
  OrderRecorder(std::string path, int64_t done);
  void add(const StretchOrder& stretch);

 private:
  [[noreturn]] void refuse() const;
  std::string path_;
  std::ofstream file_;
};

// What a file has.
class RecordedOrder {
 public:
  // `text`: all of it; `name` is for messages. Throws Error(invalid_argument).
  RecordedOrder(const std::string& text, std::string name);
  // The stretch that begins with that step; null where there is none.
  const StretchOrder* from(int64_t first) const;
  // Throws Error(invalid_argument) where there is none that begins and ends there, of this way and
  // so many workers and servers.
  const StretchOrder& at(const StretchOrder& wanted) const;

 private:
  std::string name_;
  std::map<int64_t, StretchOrder> stretches_;  // by first step
};

// Throws Error(invalid_argument): a record that cannot be kept, for this reason.
[[noreturn]] void refuse_record(const std::string& why);

// As in a line.
std::string text_of(const UpdateOrder& order);
UpdateOrder order_in(const std::string& text);

}  // namespace tutti::training
