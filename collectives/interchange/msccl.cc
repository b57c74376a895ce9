#include "collectives/interchange/msccl.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "topology/xml_file.h"

namespace tutti {

namespace {

// Limits far above the needs of any real file. They prevent a hostile file from exhausting memory
// or time.
constexpr int64_t kMostGpus = 1024;
constexpr int64_t kMostChunks = 1 << 16;       // chunks in one buffer
constexpr int64_t kMostChunksInAll = 1 << 21;  // chunks in all buffers, and in all steps

constexpr std::array<std::string_view, 4> kElements = {"algo", "gpu", "tb", "step"};
constexpr std::array<std::string_view, 9> kTypes = {"s",    "r",   "rcs", "rrc", "rrs",
                                                    "rrcs", "cpy", "re",  "nop"};

std::optional<Collective> collective_of(std::string_view coll) {
  if (coll == "allreduce") return Collective::all_reduce;
  if (coll == "allgather") return Collective::all_gather;
  if (coll == "reduce_scatter" || coll == "reducescatter") return Collective::reduce_scatter;
  if (coll == "alltoall") return Collective::all_to_all;
  if (coll == "broadcast") return Collective::broadcast;
  if (coll == "reduce") return Collective::reduce;
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::string_view xml, const std::string& file) : xml_(xml, file) { result_.file = file; }

  MscclAlgorithm read() {
    const pugi::xml_node algo = xml_.child("algo");
    enter(algo, {});
    if (!algo) refuse("there is no <algo>", "use a file in the MSCCL XML format");
    read_header(algo);
    for (const pugi::xml_node& gpu : children(algo, "gpu")) read_gpu(gpu);
    place_ = {.line = xml_.line_of(algo)};
    if (gpus_read_ != static_cast<int64_t>(result_.gpus.size())) {
      refuse(cat("ngpus is ", result_.gpus.size(), ", but the file has ", gpus_read_, " <gpu>"));
    }
    check_messages();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view problem, std::string_view remedy = {}) const {
    refuse_msccl(result_.file, place_, problem, remedy);
  }

  // Sets the place that later errors name.
  void enter(const pugi::xml_node& node, MscclPlace place) {
    place_ = place;
    place_.line = xml_.line_of(node);
  }

  // Returns the child elements with that name. Other elements of the format are refused; elements
  // outside the format (TACCL's <copy>) are skipped.
  std::vector<pugi::xml_node> children(const pugi::xml_node& node, std::string_view wanted) {
    std::vector<pugi::xml_node> found;
    for (const pugi::xml_node& child : node.children()) {
      if (child.type() != pugi::node_element) continue;
      const std::string_view name = child.name();
      if (std::ranges::find(kElements, name) == kElements.end()) {
        result_.foreign.try_emplace(cat('<', printable(name, 40), '>'), xml_.line_of(child));
        continue;
      }
      if (name != wanted) {
        place_.line = xml_.line_of(child);
        refuse(cat("<", name, "> where only <", wanted, "> is expected"));
      }
      found.push_back(child);
    }
    return found;
  }

  std::string_view text(const pugi::xml_node& node, const char* attribute) const {
    const pugi::xml_attribute found = node.attribute(attribute);
    if (!found) refuse(cat("<", node.name(), "> has no attribute ", attribute));
    return found.value();
  }
  int32_t number(const pugi::xml_node& node, const char* attribute, int64_t least,
                 int64_t most) const {
    const std::string_view word = text(node, attribute);
    const auto value = parse_number<int64_t>(word);
    if (!value || *value < least || *value > most) {
      refuse(cat(attribute, "=", in_quotes(word), " is not an integer from ", least, " to ", most));
    }
    return static_cast<int32_t>(*value);
  }
  int32_t number_or(const pugi::xml_node& node, const char* attribute, int32_t absent,
                    int64_t least, int64_t most) const {
    return node.attribute(attribute) ? number(node, attribute, least, most) : absent;
  }

  void read_header(const pugi::xml_node& algo) {
    result_.name = printable(algo.attribute("name").value());  // shown in messages
    const int32_t gpus = number(algo, "ngpus", 1, kMostGpus);
    const std::string_view coll = text(algo, "coll");
    const std::optional<Collective> collective = collective_of(coll);
    if (!collective) {
      refuse(coll == "custom"
                 ? "coll=\"custom\" does not define the expected results, so they cannot be proved"
                 : cat("coll=", in_quotes(coll), " cannot be imported"),
             "import an allreduce, allgather, alltoall, reduce_scatter, broadcast or reduce");
    }
    result_.collective = *collective;
    // A file that declares both in-place and out-of-place use is read as in place, which is valid
    // for both.
    result_.in_place = number_or(algo, "inplace", 0, 0, 1) == 1;
    number_or(algo, "outofplace", 0, 0, 1);
    result_.root = number_or(algo, "root", 0, 0, gpus - 1);
    const int32_t chunks = number(algo, "nchunksperloop", 1, kMostChunks);
    const bool in_blocks = has_input_blocks(*collective);
    const bool out_blocks = has_output_blocks(*collective);
    if ((in_blocks || out_blocks) && chunks % gpus != 0) {
      refuse(cat("nchunksperloop is ", chunks, ", not a multiple of the ", gpus, " gpus"));
    }
    result_.input_chunks = out_blocks && !in_blocks ? chunks / gpus : chunks;
    result_.output_chunks = in_blocks && !out_blocks ? chunks / gpus : chunks;
    // Memory is allocated only after the <gpu> elements have been counted.
    const auto there = std::distance(algo.begin(), algo.end());
    if (gpus > there) refuse(cat("ngpus is ", gpus, ", but the file has fewer <gpu>"));
    result_.gpus.resize(gpus);
    take_from_budget(int64_t{chunks} * gpus);
  }

  void take_from_budget(int64_t chunks) {
    in_all_ += chunks;
    if (in_all_ > kMostChunksInAll) {
      refuse(cat("more than ", kMostChunksInAll, " chunks in all buffers and steps so far"),
             "use fewer chunks");
    }
  }

  void read_gpu(const pugi::xml_node& node) {
    enter(node, {});
    const auto gpus = static_cast<int64_t>(result_.gpus.size());
    const int32_t id = number(node, "id", 0, gpus - 1);
    enter(node, {.gpu = id});
    MscclGpu& gpu = result_.gpus[id];
    if (gpu.line != 0) refuse(cat("gpu ", id, " appears twice, first in line ", gpu.line));
    gpu.line = place_.line;
    ++gpus_read_;
    const int32_t inputs = number(node, "i_chunks", 0, result_.input_chunks);
    const int32_t outputs = number(node, "o_chunks", 0, result_.output_chunks);
    gpu.scratch_chunks = number(node, "s_chunks", 0, kMostChunks);
    // Files for in-place calls may omit i_chunks or o_chunks.
    limits_ = {inputs > 0 ? inputs : result_.input_chunks,
               outputs > 0 ? outputs : result_.output_chunks, gpu.scratch_chunks};
    take_from_budget(gpu.scratch_chunks);

    const std::vector<pugi::xml_node> nodes = children(node, "tb");
    std::map<int32_t, int32_t> positions;  // index of a threadblock by its ID
    for (const pugi::xml_node& tb : nodes) {
      enter(tb, {.gpu = id});
      const int32_t tb_id = number(tb, "id", 0, kMostChunks);
      if (!positions.emplace(tb_id, static_cast<int32_t>(positions.size())).second) {
        refuse(cat("threadblock ", tb_id, " appears twice"));
      }
    }
    for (const pugi::xml_node& tb : nodes) gpu.threadblocks.push_back(read_threadblock(tb, id));
    for (size_t i = 0; i < nodes.size(); ++i) resolve_dependencies(nodes[i], id, i, positions);
  }

  MscclThreadblock read_threadblock(const pugi::xml_node& node, int32_t gpu) {
    const int32_t id = number(node, "id", 0, kMostChunks);
    enter(node, {.gpu = gpu, .threadblock = id});
    const auto last = static_cast<int64_t>(result_.gpus.size()) - 1;
    MscclThreadblock tb{.id = id,
                        .send_peer = number(node, "send", -1, last),
                        .recv_peer = number(node, "recv", -1, last),
                        .channel = number(node, "chan", 0, kMostChunks),
                        .line = place_.line};
    if (tb.send_peer == gpu || tb.recv_peer == gpu) refuse("its peer is its own gpu");
    for (const pugi::xml_node& step : children(node, "step")) {
      enter(step, {.gpu = gpu, .threadblock = id});
      tb.steps.push_back(read_step(step, tb));
    }
    return tb;
  }

  MscclStep read_step(const pugi::xml_node& node, const MscclThreadblock& tb) {
    const auto position = static_cast<int32_t>(tb.steps.size());
    const int32_t number_there = number(node, "s", 0, INT32_MAX);
    place_.step = number_there;
    if (number_there != position) {
      refuse(cat("s=\"", number_there, "\" where step ", position, " is expected"));
    }
    MscclStep step{.line = place_.line};
    const std::string_view type = text(node, "type");
    const auto* known = std::ranges::find(kTypes, type);
    if (known == kTypes.end()) {
      refuse(
          cat("type=", in_quotes(type), " is not one of s, r, rcs, rrc, rrs, rrcs, cpy, re, nop"));
    }
    step.type = static_cast<MscclStep::Type>(known - kTypes.begin());
    number_or(node, "hasdep", 0, 0, 1);
    if (step.type == MscclStep::Type::nop) return step;
    if (sends(step.type) && tb.send_peer < 0) refuse("sends, but its threadblock has no send peer");
    if (receives(step.type) && tb.recv_peer < 0) {
      refuse("receives, but its threadblock has no recv peer");
    }
    const int32_t count = number(node, "cnt", 1, kMostChunks);
    take_from_budget(count);
    using enum MscclStep::Type;
    step.src =
        range(node, "srcbuf", "srcoff", count, step.type != MscclStep::Type::r && step.type != rcs);
    step.dst =
        range(node, "dstbuf", "dstoff", count, step.type != MscclStep::Type::s && step.type != rrs);
    return step;
  }

  // Reads a range. A range that only the other end accesses is not checked here.
  MscclRange range(const pugi::xml_node& node, const char* buffer, const char* offset,
                   int32_t count, bool is_touched) const {
    const std::string_view letter = text(node, buffer);
    constexpr std::string_view kBuffers = "ios";
    if (letter.size() != 1 || kBuffers.find(letter) == std::string_view::npos) {
      refuse(cat(buffer, "=", in_quotes(letter), " is not one of i, o, s"));
    }
    if (!is_touched) return {.buffer = letter[0]};
    const int32_t limit = limits_[kBuffers.find(letter)];
    const int32_t first = number(node, offset, 0, kMostChunks);
    if (first > limit - count) {
      refuse(cat("chunks ", first, " to ", int64_t{first} + count - 1, " of ", letter,
                 " are out of bounds: there are ", limit));
    }
    return {.buffer = letter[0], .first = first, .count = count};
  }

  void resolve_dependencies(const pugi::xml_node& node, int32_t gpu, size_t position,
                            const std::map<int32_t, int32_t>& positions) {
    std::vector<MscclThreadblock>& threadblocks = result_.gpus[gpu].threadblocks;
    MscclThreadblock& tb = threadblocks[position];
    size_t number_of = 0;
    for (const pugi::xml_node& step : children(node, "step")) {
      MscclStep& target = tb.steps[number_of];
      enter(step, {.gpu = gpu, .threadblock = tb.id, .step = static_cast<int32_t>(number_of++)});
      const int32_t id = number_or(step, "depid", -1, -1, kMostChunks);
      if (id < 0) continue;
      const auto found = positions.find(id);
      if (found == positions.end()) refuse(cat("depid=\"", id, "\": there is no such threadblock"));
      const auto steps = static_cast<int64_t>(threadblocks[found->second].steps.size());
      const int32_t after = number(step, "deps", -1, INT32_MAX);
      if (after < 0) continue;
      if (after >= steps) {
        refuse(cat("deps=\"", after, "\": threadblock ", id, " has ", steps, " steps"));
      }
      target.after_threadblock = found->second;
      target.after_step = after;
    }
  }

  // One end of a queue of messages.
  struct End {
    const MscclThreadblock* threadblock = nullptr;
    std::vector<int32_t> steps;
  };
  // A queue of messages: sender, receiver, channel.
  using Queue = std::tuple<int32_t, int32_t, int32_t>;

  void add_end(std::map<Queue, End>& ends, const Queue& queue, int32_t gpu,
               const MscclThreadblock& tb, bool (*takes_part)(MscclStep::Type)) {
    std::vector<int32_t> steps;
    for (size_t i = 0; i < tb.steps.size(); ++i) {
      if (takes_part(tb.steps[i].type)) steps.push_back(static_cast<int32_t>(i));
    }
    if (steps.empty()) return;
    const auto [place, is_new] = ends.try_emplace(queue, End{&tb, std::move(steps)});
    if (is_new) return;
    place_ = {.line = tb.line, .gpu = gpu, .threadblock = tb.id};
    refuse(cat("threadblock ", place->second.threadblock->id, " has the same peer and channel ",
               tb.channel, " already"));
  }

  // Checks that the k-th message sent on a channel is also the k-th received on it, with the same
  // count.
  void check_messages() {
    std::map<Queue, End> senders;
    std::map<Queue, End> receivers;
    for (size_t i = 0; i < result_.gpus.size(); ++i) {
      const auto gpu = static_cast<int32_t>(i);
      for (const MscclThreadblock& tb : result_.gpus[i].threadblocks) {
        add_end(senders, {gpu, tb.send_peer, tb.channel}, gpu, tb, &sends);
        add_end(receivers, {tb.recv_peer, gpu, tb.channel}, gpu, tb, &receives);
      }
    }
    for (const auto& [queue, sender] : senders) {
      const auto [from, to, channel] = queue;
      check_queue(sender, receivers[queue], from, to, channel);
    }
    for (const auto& [queue, receiver] : receivers) {
      const auto [from, to, channel] = queue;
      if (!senders.contains(queue)) check_queue({}, receiver, from, to, channel);
    }
  }

  void check_queue(const End& sender, const End& receiver, int32_t from, int32_t to,
                   int32_t channel) {
    const size_t sent = sender.steps.size();
    const size_t received = receiver.steps.size();
    for (size_t k = 0; k < std::min(sent, received); ++k) {
      const int32_t out = count_of(sender.threadblock->steps[sender.steps[k]]);
      const int32_t in = count_of(receiver.threadblock->steps[receiver.steps[k]]);
      if (out == in) continue;
      stand_at(receiver, k, to);
      refuse(cat("wrong count: receives ", in, " chunks where gpu ", from, ", threadblock ",
                 sender.threadblock->id, ", step ", sender.steps[k], " sends ", out));
    }
    if (sent > received) {
      stand_at(sender, received, from);
      refuse(cat("unmatched send: gpu ", to, " never receives it on channel ", channel));
    }
    if (received > sent) {
      stand_at(receiver, sent, to);
      refuse(cat("unmatched receive: gpu ", from, " never sends it on channel ", channel));
    }
  }
  static int32_t count_of(const MscclStep& step) {
    return std::max(step.src.count, step.dst.count);
  }
  void stand_at(const End& end, size_t k, int32_t gpu) {
    const int32_t step = end.steps[k];
    place_ = {.line = end.threadblock->steps[step].line,
              .gpu = gpu,
              .threadblock = end.threadblock->id,
              .step = step};
  }

  XmlFile xml_;
  MscclAlgorithm result_;
  MscclPlace place_;
  std::array<int32_t, 3> limits_ = {};  // limits of i, o, s on this gpu
  int64_t in_all_ = 0;
  int64_t gpus_read_ = 0;
};

}  // namespace

std::string_view name(MscclStep::Type type) { return kTypes[static_cast<size_t>(type)]; }

void refuse_msccl(const std::string& file, const MscclPlace& place, std::string_view problem,
                  std::string_view remedy) {
  std::string where = file;
  if (place.line >= 0) where += cat(", line ", place.line);
  if (place.gpu >= 0) where += cat(", gpu ", place.gpu);
  if (place.threadblock >= 0) where += cat(", threadblock ", place.threadblock);
  if (place.step >= 0) where += cat(", step ", place.step);
  throw Error(ErrorCode::invalid_argument, problem,
              {.where = where, .remedy = std::string(remedy)});
}

MscclAlgorithm parse_msccl(std::string_view xml, const std::string& file) {
  return Reader(xml, file).read();
}

}  // namespace tutti
