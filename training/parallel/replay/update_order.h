// The order in which servers, or neighbours, applied updates: recorded during training, and
// enforced when it is repeated (`--record FILE`, `--replay FILE`).
//
// A file has one line of JSON for each stretch of steps between two meetings of all ranks:
//
//   {"way":"async","run":"b1946ac92492d234","first":1,"last":16,"workers":2,
//    "servers":[[[0,0],[1,1],[0,2] ...] ...]}
//
// "servers" lists, for each server, its applied updates as [worker, clock] (clocks:
// servers/messages.h; for `adpsgd`, servers are ranks, clocks are updates, and even ranks have
// none). The order and the run's settings determine all results of the run, bit for bit.
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

// Updates in the order of one server.
using UpdateOrder = std::vector<AppliedPush>;

struct StretchOrder {
  std::string way;    // text_of(SyncOptions)
  std::string run;    // SyncOptions::run; empty: not compared
  int64_t first = 0;  // step, from 1
  int64_t last = 0;
  int64_t workers = 0;
  std::vector<UpdateOrder> servers;
};

// Writes a file, one stretch at a time.
class OrderRecorder {
 public:
  // Stretches in the file that end after step `done` belong to an abandoned continuation of the run
  // and are removed; earlier ones are kept. Throws Error(system) if the file cannot be written.
  OrderRecorder(std::string path, int64_t done);
  void add(const StretchOrder& stretch);

 private:
  [[noreturn]] void refuse() const;
  std::string path_;
  std::ofstream file_;
};

// The contents of a file.
class RecordedOrder {
 public:
  // `text`: the whole file; `name` is for messages. Throws Error(invalid_argument).
  RecordedOrder(const std::string& text, std::string name);
  // The stretch that begins with step `first`; null if there is none.
  const StretchOrder* from(int64_t first) const;
  // Throws Error(invalid_argument) unless there is a stretch with this beginning, end, way, and
  // numbers of workers and servers.
  const StretchOrder& at(const StretchOrder& wanted) const;

 private:
  std::string name_;
  std::map<int64_t, StretchOrder> stretches_;  // by first step
};

// Throws Error(invalid_argument): the record cannot be replayed, for this reason.
[[noreturn]] void refuse_record(const std::string& why);

// Conversion to and from the text of a line.
std::string text_of(const UpdateOrder& order);
UpdateOrder order_in(const std::string& text);

}  // namespace tutti::training
