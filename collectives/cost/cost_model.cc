#include "collectives/cost/cost_model.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "base/error.h"
#include "base/file_text.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"

namespace tutti {

namespace {

constexpr int kFormat = 1;

// Calls visit(name, member) for each number of the struct.
template <typename Costs, typename Visit>
void for_each_member(Costs& c, Visit visit) requires requires {
  c.recv_reduce;
}
{
  visit("send", c.send);
  visit("recv", c.recv);
  visit("recv_reduce", c.recv_reduce);
  visit("reduce", c.reduce);
  visit("copy", c.copy);
}

template <typename Link, typename Visit>
void for_each_member(Link& l, Visit visit) requires requires {
  l.latency;
}
{
  visit("call", l.call);
  visit("send", l.send);
  visit("reader", l.reader);
  visit("recv", l.recv);
  visit("latency", l.latency);
  visit("local", l.local);
  visit("wire", l.wire);
}

template <typename Gpu, typename Visit>
void for_each_member(Gpu& g, Visit visit) requires requires {
  g.memory;
}
{ visit("memory", g.memory); }

template <typename Costs>
Json members(const Costs& costs) {
  Json json = Json::object();
  for_each_member(costs, [&](const char* name, double value) { json[name] = value; });
  return json;
}

Json link_json(const LinkCosts& link) {
  Json json = members(link);
  for (const ByteCosts& costs : link.bytes) json["bytes"].push_back(members(costs));
  return json;
}

template <typename Costs>
void read_members(const Json& json, Costs& costs) {
  for_each_member(costs, [&](const char* name, double& value) {
    value = json.at(name).get<double>();
    if (!std::isfinite(value) || value < 0) {
      throw Error(ErrorCode::invalid_argument, cat("\"", name, "\" is ", value));
    }
  });
}

LinkCosts read_link(const Json& json) {
  LinkCosts link;
  Json complete = json;
  // Files of earlier builds have no wire time, because those builds counted it as processor time.
  if (!complete.contains("wire")) complete["wire"] = 0.0;
  read_members(complete, link);
  const Json& bytes = json.at("bytes");
  if (bytes.size() != link.bytes.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat("\"bytes\" has ", bytes.size(), " entries, not ", link.bytes.size()));
  }
  for (size_t i = 0; i < link.bytes.size(); ++i) read_members(bytes[i], link.bytes[i]);
  return link;
}

Json gpu_json(const GpuCosts& gpu) {
  Json json = members(gpu);
  json["blocks"] = gpu.blocks;
  if (gpu.mesh) json["mesh"] = true;
  if (gpu.multicast > 0) json["multicast"] = gpu.multicast;
  json["simple"] = link_json(gpu.simple);
  json["lines"] = link_json(gpu.lines);
  return json;
}

GpuCosts read_gpu(const Json& json) {
  GpuCosts gpu;
  read_members(json, gpu);
  gpu.blocks = std::max(1, json.at("blocks").get<int32_t>());
  if (json.contains("mesh")) gpu.mesh = json["mesh"].get<bool>();
  if (json.contains("multicast")) gpu.multicast = std::max(0.0, json["multicast"].get<double>());
  gpu.simple = read_link(json.at("simple"));
  gpu.lines = read_link(json.at("lines"));
  return gpu;
}

// Returns a text that identifies the conditions of a measurement: the processor, the number of
// cores, and the measurement's format.
std::string fingerprint() {
  std::string text = cat("format ", kFormat, ", ", ::sysconf(_SC_NPROCESSORS_ONLN), " cores, ");
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line) && !line.empty();) {
    for (const std::string_view key : {"model name", "cache size", "CPU part", "flags"}) {
      if (line.starts_with(key)) text += line;
    }
  }
  std::ostringstream hex;
  hex << std::hex << std::setw(16) << std::setfill('0') << fnv(text);
  return hex.str();
}

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return cat(cache, "/tutti");
  }
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? cat(home, "/.cache/tutti") : "";
}

}  // namespace

// Returns the costs at a size, by linear interpolation in the logarithm of the size.
ByteCosts LinkCosts::at(uint64_t footprint) const {
  if (footprint <= kFootprints.front()) return bytes.front();
  if (footprint >= kFootprints.back()) return bytes.back();
  const size_t upper = std::ranges::upper_bound(kFootprints, footprint) - kFootprints.begin();
  const double low = std::log2(static_cast<double>(kFootprints[upper - 1]));
  const double high = std::log2(static_cast<double>(kFootprints[upper]));
  const double part = (std::log2(static_cast<double>(footprint)) - low) / (high - low);
  const ByteCosts& a = bytes[upper - 1];
  const ByteCosts& b = bytes[upper];
  const auto between = [&](double x, double y) { return x + part * (y - x); };
  return {.send = between(a.send, b.send),
          .recv = between(a.recv, b.recv),
          .recv_reduce = between(a.recv_reduce, b.recv_reduce),
          .reduce = between(a.reduce, b.reduce),
          .copy = between(a.copy, b.copy)};
}

CostModel CostModel::defaults() {
  constexpr double ns = 1e-9;
  CostModel model;
  model.shm = {.call = 150 * ns,
               .send = 60 * ns,
               .reader = 20 * ns,
               .recv = 60 * ns,
               .latency = 80 * ns,
               .local = 20 * ns,
               .bytes = {}};
  model.tcp = {.call = 2000 * ns,
               .send = 4000 * ns,
               .reader = 4000 * ns,
               .recv = 3000 * ns,
               .latency = 6000 * ns,
               .local = 20 * ns,
               .wire = 0.8 * ns,  // 10 Gbit/s
               .bytes = {}};
  constexpr std::array kCopyGBps = {30.0, 20.0, 20.0, 20.0, 12.0, 7.0, 5.0};
  for (size_t i = 0; i < kCopyGBps.size(); ++i) {
    const double copy = ns / kCopyGBps[i];
    model.shm.bytes[i] = {.send = copy,
                          .recv = 1.5 * copy,
                          .recv_reduce = 1.8 * copy,
                          .reduce = 1.5 * copy,
                          .copy = copy};
    model.tcp.bytes[i] = {.send = 0.25 * ns + copy,
                          .recv = 0.25 * ns + copy,
                          .recv_reduce = 0.3 * ns + 2 * copy,
                          .reduce = 1.5 * copy,
                          .copy = copy};
  }
  model.switch_time = 1500 * ns;
  model.cores = static_cast<int32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  return model;
}

const LinkCosts& CostModel::link(PathClass path) const {
  if (path == PathClass::shm) return shm;
  if (path == PathClass::ucx && ucx) return *ucx;
  if (path == PathClass::ofi && ofi) return *ofi;
  return tcp;
}

LinkCosts& CostModel::own_link(PathClass path) {
  if (path == PathClass::shm) return shm;
  if (path == PathClass::tcp) return tcp;
  std::optional<LinkCosts>& link = path == PathClass::ucx ? ucx : ofi;
  return link ? *link : link.emplace(tcp);
}

namespace {

// A fabric is used only if its time is below this threshold, because opening a fabric takes memory
// and time.
constexpr double kWorthIt = 0.9;  // as a fraction of TCP's time

// Returns the geometric mean over sizes of the time of a call with one message.
double geometric_mean_time(const LinkCosts& link) {
  double sum = 0;
  const auto add = [&](uint64_t bytes) {
    const ByteCosts costs = link.at(bytes);
    sum += std::log(link.call + link.send + link.latency + link.recv +
                    static_cast<double>(bytes) * (costs.send + costs.recv));
  };
  add(8);
  for (const uint64_t bytes : LinkCosts::kFootprints) add(bytes);
  return std::exp(sum / (1 + LinkCosts::kFootprints.size()));
}

}  // namespace

std::optional<std::vector<PathClass>> fabrics_quicker_than_tcp(const CostModel& model) {
  if (!model.ucx && !model.ofi) return std::nullopt;
  const auto time = [&](PathClass path) { return geometric_mean_time(model.link(path)); };
  std::vector<PathClass> quicker;
  // Fabrics that were not measured have TCP's costs here, so they are not faster.
  for (const PathClass fabric : {PathClass::ucx, PathClass::ofi}) {
    if (time(fabric) < kWorthIt * time(PathClass::tcp)) quicker.push_back(fabric);
  }
  std::ranges::stable_sort(quicker, {}, time);
  return quicker;
}

std::string to_json(const CostModel& model) {
  Json json = {{"format", kFormat},
               {"cores", model.cores},
               {"switch_time", model.switch_time},
               {"error", to_json(model.errors)},
               {"shm", link_json(model.shm)},
               {"tcp", link_json(model.tcp)}};
  if (model.ucx) json["ucx"] = link_json(*model.ucx);
  if (model.ofi) json["ofi"] = link_json(*model.ofi);
  for (const auto& [name, gpu] : model.gpus) json["gpus"][name] = gpu_json(gpu);
  return json.dump();
}

CostModel parse_cost_model(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat) {
      throw Error(ErrorCode::invalid_argument, cat("the format is ", json.at("format").dump(),
                                                   "; this build reads format ", kFormat));
    }
    CostModel model;
    model.cores = std::max(1, json.at("cores").get<int32_t>());
    model.switch_time = std::max(0.0, json.at("switch_time").get<double>());
    if (json.contains("error")) model.errors = errors_from(json["error"]);
    model.shm = read_link(json.at("shm"));
    model.tcp = read_link(json.at("tcp"));
    if (json.contains("ucx")) model.ucx = read_link(json["ucx"]);
    if (json.contains("ofi")) model.ofi = read_link(json["ofi"]);
    if (json.contains("gpus")) {
      for (const Json::Member& gpu : json["gpus"].items()) {
        model.gpus[gpu.name] = read_gpu(gpu.value);
      }
    }
    return model;
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, cat("the text is not a cost model: ", error.what()));
  }
}

bool is_cost_model(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) &&
         file_text(path, FileKind::cost_model).find("\"switch_time\"") != std::string::npos;
}

std::string cost_model_file() {
  const std::string wanted = settings().get_string("TUTTI_TUNE_FILE");
  if (wanted == "none") return {};
  if (!wanted.empty()) return wanted;
  const std::string folder = cache_folder();
  return folder.empty() ? folder : cat(folder, "/tune-", fingerprint(), ".json");
}

CostModel load_cost_model() {
  const std::string path = cost_model_file();
  if (path.empty()) return CostModel::defaults();
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    if (!settings().get_string("TUTTI_TUNE_FILE").empty()) {
      log(LogLevel::warning, cat("TUTTI_TUNE_FILE=", path, " cannot be read; using defaults"));
    }
    return CostModel::defaults();
  }
  try {
    return parse_cost_model(file_text(path, FileKind::cost_model));
  } catch (const Error& error) {
    log(LogLevel::warning, cat("not using ", path, ": ", error.what(),
                               "; remedy: run `tutti tune` again, or remove the file"));
    return CostModel::defaults();
  }
}

}  // namespace tutti
