// The order in which parameter servers, or the odd ranks of `adpsgd`, applied updates. It is
// recorded during training, and enforced when the run is repeated (`--record FILE`, `--replay
// FILE`).
//
// A stretch is the steps between two exchanges among all ranks. The file has one line of JSON for
// each stretch:
//
//   {"way":"async","run":"b1946ac92492d234","first":1,"last":16,"workers":2,
//    "servers":[[[0,0],[1,1],[0,2] ...] ...]}
//
// "servers" lists, for each server, the updates that it applied as [worker, clock] (clocks:
// servers/messages.h; for `adpsgd`, servers are ranks, clocks are update numbers, and the lists of
// even ranks are empty). The order and the run's settings determine all results of the run, bit for
// bit.
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

// Updates in the order in which one server applied them.
using UpdateOrder = std::vector<AppliedPush>;

struct StretchOrder {
  std::string way;    // text_of(SyncOptions) of the run
  std::string run;    // SyncOptions::run; empty: not compared
  int64_t first = 0;  // the stretch's first step; steps count from 1
  int64_t last = 0;
  int64_t workers = 0;
  std::vector<UpdateOrder> servers;
};

// Writes a file of orders, one stretch at a time.
class OrderRecorder {
 public:
  // Opens the file. Keeps its stretches up to step `done`, and removes later ones, which belong to
  // an abandoned continuation of the run. Throws Error(system) if the file cannot be written.
  OrderRecorder(std::string path, int64_t done);
  void add(const StretchOrder& stretch);

 private:
  [[noreturn]] void refuse() const;
  std::string path_;
  std::ofstream file_;
};

// The contents of a file of orders.
class RecordedOrder {
 public:
  // Parses `text`, the whole file; `name` is the file's name for messages. Throws
  // Error(invalid_argument) for invalid text.
  RecordedOrder(const std::string& text, std::string name);
  // Returns the stretch that begins with step `first`, or null if there is none.
  const StretchOrder* from(int64_t first) const;
  // Returns the stretch that begins with the step `wanted.first`. Throws Error(invalid_argument) if
  // there is none, or if its last step, way, run (if known) or numbers of workers and servers
  // differ from those of `wanted`.
  const StretchOrder& at(const StretchOrder& wanted) const;

 private:
  std::string name_;
  std::map<int64_t, StretchOrder> stretches_;  // key: first step
};

// Throws Error(invalid_argument) that states why the record cannot be replayed.
[[noreturn]] void refuse_record(const std::string& why);

// Convert one server's order to and from JSON.
std::string text_of(const UpdateOrder& order);
UpdateOrder order_in(const std::string& text);

}  // namespace tutti::training
