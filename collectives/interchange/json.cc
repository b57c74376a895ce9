#include "collectives/interchange/json.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti {

namespace {

constexpr std::string_view kFormat = "tutti-programs";
constexpr int kVersion = 1;

constexpr std::array<std::string_view, 3> kSpaces = {"input", "output", "scratch"};
constexpr std::array<std::string_view, 5> kKinds = {"send", "recv", "recv_reduce", "reduce",
                                                    "copy"};
constexpr std::array<std::string_view, 2> kWires = {"element", "accumulator"};

Json to_json(const RangeList& ranges) {
  Json list = Json::array();
  for (const ChunkRange& range : ranges) {
    list.push_back({kSpaces[static_cast<size_t>(range.space)], range.first, range.count});
  }
  return list;
}

bool is_message(StepKind kind) { return !is_local(kind); }

Json to_json(const Step& step) {
  Json object = {{"kind", kKinds[static_cast<size_t>(step.kind)]}};
  if (is_message(step.kind)) object["peers"] = step.peers;
  if (step.kind != StepKind::recv) object["src"] = to_json(step.src);
  if (step.kind == StepKind::reduce) object["src2"] = to_json(step.src2);
  if (step.kind != StepKind::send) object["dst"] = to_json(step.dst);
  if (step.kind == StepKind::recv_reduce) {
    object["received_on"] = step.received_on_left ? "left" : "right";
  }
  if (is_message(step.kind)) object["wire"] = kWires[static_cast<size_t>(step.wire)];
  return object;
}

// Reads one document; `where_` is the current position, for error messages.
class Reader {
 public:
  ProgramSet read(std::string_view text) {
    const Json document = parse(text);
    if (word(document, "format") != kFormat) refuse(cat("\"format\" is not \"", kFormat, '"'));
    if (number(document, "version") != kVersion) refuse(cat("\"version\" is not ", kVersion));
    ProgramSet set{.collective = collective(document), .algorithm = word(document, "algorithm")};
    const int32_t ranks = number(document, "ranks");
    set.root = number(document, "root");
    const Json& chunks = member(document, "chunks");
    const Program limits{.input_chunks = number(chunks, "input"),
                         .output_chunks = number(chunks, "output"),
                         .scratch_chunks = number(chunks, "scratch"),
                         .chunks_per_message = number(document, "chunks_per_message"),
                         .fan_out = number(document, "fan_out")};
    const Json& programs = list(document, "programs");
    if (programs.size() != static_cast<size_t>(ranks) || ranks < 1) {
      refuse(cat("there are ", programs.size(), " programs for ", ranks, " ranks"));
    }
    if (set.root >= ranks) refuse(cat("root ", set.root, " is not one of the ", ranks, " ranks"));
    for (const Json& steps : programs) {
      Program& program = set.programs.emplace_back(limits);
      where_ = cat("rank ", set.programs.size() - 1);
      if (!steps.is_array()) refuse("its program is not a list");
      for (const Json& object : steps) {
        where_ = cat("rank ", set.programs.size() - 1, ", step ", program.steps.size());
        program.steps.push_back(step(object));
      }
    }
    return set;
  }

 private:
  [[noreturn]] void refuse(std::string_view problem) const {
    throw Error(ErrorCode::invalid_argument, problem,
                {.where = where_, .remedy = "collectives/interchange/json.h shows the format"});
  }

  Json parse(std::string_view text) const {
    try {
      return Json::parse(text);
    } catch (const Error& error) {
      refuse(cat("this is not JSON, or it is truncated: ", error.what()));
    }
  }

  const Json& member(const Json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) refuse(cat("\"", key, "\" is missing"));
    return object[key];
  }
  const Json& list(const Json& object, const char* key) const {
    const Json& found = member(object, key);
    if (!found.is_array()) refuse(cat("\"", key, "\" is not a list"));
    return found;
  }
  std::string word(const Json& object, const char* key) const {
    const Json& found = member(object, key);
    if (!found.is_string()) refuse(cat("\"", key, "\" is not a string"));
    return found.get<std::string>();
  }
  int32_t number(const Json& object, const char* key) const {
    return number_in(member(object, key), key);
  }
  int32_t number_in(const Json& value, const char* what) const {
    if (!value.is_whole_number() || value < 0 || value > INT32_MAX) {
      refuse(cat("\"", what, "\" is not an integer from 0 to ", INT32_MAX));
    }
    return value.get<int32_t>();
  }
  // Returns the index of the word among the allowed ones.
  size_t choice(const Json& object, const char* key, std::span<const std::string_view> choices) {
    const std::string found = word(object, key);
    const auto place = std::ranges::find(choices, found);
    if (place == choices.end()) refuse(cat("\"", key, "\" is unknown: ", in_quotes(found)));
    return static_cast<size_t>(place - choices.begin());
  }

  Collective collective(const Json& document) const {
    const std::string wanted = word(document, "collective");
    for (const Collective known : kCollectivesWithAlgorithms) {
      if (wanted == name(known)) return known;
    }
    refuse(cat("\"collective\" is unknown: ", in_quotes(wanted)));
  }

  RangeList ranges(const Json& object, const char* key) const {
    RangeList result;
    for (const Json& range : list(object, key)) {
      if (!range.is_array() || range.size() != 3 || !range[0].is_string()) {
        refuse(cat("\"", key, "\" has a range that is not [space, first, count]"));
      }
      const auto* space = std::ranges::find(kSpaces, range[0].get<std::string>());
      if (space == kSpaces.end()) {
        refuse(cat("\"", key,
                   "\" has a range in an unknown space: ", in_quotes(range[0].get<std::string>())));
      }
      result.push_back({static_cast<Space>(space - kSpaces.begin()), number_in(range[1], key),
                        number_in(range[2], key)});
    }
    return result;
  }

  Step step(const Json& object) {
    Step step{.kind = static_cast<StepKind>(choice(object, "kind", kKinds))};
    if (is_message(step.kind)) {
      for (const Json& peer : list(object, "peers")) step.peers.push_back(number_in(peer, "peers"));
      step.wire = static_cast<Wire>(choice(object, "wire", kWires));
    }
    if (step.kind != StepKind::recv) step.src = ranges(object, "src");
    if (step.kind == StepKind::reduce) step.src2 = ranges(object, "src2");
    if (step.kind != StepKind::send) step.dst = ranges(object, "dst");
    if (step.kind == StepKind::recv_reduce) {
      constexpr std::array<std::string_view, 2> kSides = {"right", "left"};
      step.received_on_left = choice(object, "received_on", kSides) == 1;
    }
    return step;
  }

  std::string where_;
};

}  // namespace

std::string to_json(const ProgramSet& set) {
  const Program limits = set.programs.empty() ? Program{} : set.programs[0];
  Json document = {{"format", kFormat},
                   {"version", kVersion},
                   {"collective", name(set.collective)},
                   {"algorithm", set.algorithm},
                   {"ranks", set.programs.size()},
                   {"root", set.root},
                   {"chunks",
                    {{"input", limits.input_chunks},
                     {"output", limits.output_chunks},
                     {"scratch", limits.scratch_chunks}}},
                   {"chunks_per_message", limits.chunks_per_message},
                   {"fan_out", limits.fan_out},
                   {"programs", Json::array()}};
  for (const Program& program : set.programs) {
    Json steps = Json::array();
    for (const Step& step : program.steps) steps.push_back(to_json(step));
    document["programs"].push_back(std::move(steps));
  }
  return document.dump(1) + '\n';
}

ProgramSet programs_from_json(std::string_view text) { return Reader().read(text); }

}  // namespace tutti
