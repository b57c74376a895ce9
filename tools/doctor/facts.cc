#include "tools/doctor/facts.h"

namespace tutti::tool {

namespace {

using Texts = std::vector<std::string>;

Json to_json(const Interface& one) {
  return {{"name", one.name}, {"addresses", one.addresses},
          {"mtu", one.mtu},   {"megabits", one.megabits},
          {"up", one.up},     {"loopback", one.loopback}};
}

Interface interface_from_json(const Json& json) {
  return {.name = json.at("name"),
          .addresses = json.at("addresses").get<Texts>(),
          .mtu = json.at("mtu"),
          .megabits = json.at("megabits"),
          .up = json.at("up"),
          .loopback = json.at("loopback")};
}

Json to_json(const FabricFacts& one) {
  return {{"name", one.name},
          {"problem", one.problem},
          {"version", one.version},
          {"devices", one.devices}};
}

FabricFacts fabric_from_json(const Json& json) {
  return {.name = json.at("name"),
          .problem = json.at("problem"),
          .version = json.at("version"),
          .devices = json.at("devices").get<Texts>()};
}

Json to_json(const Link& one) {
  return {{"from", one.from},
          {"to", one.to},
          {"from_host", one.from_host},
          {"to_host", one.to_host},
          {"latency_us", one.latency_us},
          {"bandwidth_GBps", one.bandwidth_GBps}};
}

Link link_from_json(const Json& json) {
  return {.from = json.at("from"),
          .to = json.at("to"),
          .from_host = json.at("from_host"),
          .to_host = json.at("to_host"),
          .latency_us = json.at("latency_us"),
          .bandwidth_GBps = json.at("bandwidth_GBps")};
}

template <typename T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

}  // namespace

Json to_json(const Rail& rail) {
  return {{"interface", rail.interface},
          {"address", rail.address},
          {"mtu", rail.mtu},
          {"tcp_port", rail.tcp_port},
          {"udp_port", rail.udp_port}};
}

Rail rail_from_json(const Json& json) {
  return {.interface = json.at("interface"),
          .address = json.at("address"),
          .mtu = json.at("mtu"),
          .tcp_port = json.at("tcp_port"),
          .udp_port = json.at("udp_port")};
}

Json to_json(const HostFacts& facts) {
  return {
      {"name", facts.name},
      {"problem", facts.problem},
      {"ranks", facts.ranks},
      {"hostname", facts.hostname},
      {"version", facts.version},
      {"wire_version", facts.wire_version},
      {"build", facts.build},
      {"kernel", facts.kernel},
      {"processor", facts.processor},
      {"memlock", facts.memlock},
      {"open_files", facts.open_files},
      {"cores", facts.cores},
      {"all_cores", facts.all_cores},
      {"memory", facts.memory},
      {"memory_available", facts.memory_available},
      {"container_memory", facts.container_memory},
      {"shm_size", facts.shm_size},
      {"shm_free", facts.shm_free},
      {"rdma_devices", facts.rdma_devices},
      {"interfaces", list_of(facts.interfaces)},
      {"settings", Json(facts.settings)},
      {"setting_problems", facts.setting_problems},
      {"setting_warnings", facts.setting_warnings},
      {"tune_problem", facts.tune_problem},
      {"token", Json{{"source", facts.token.source},
                     {"fingerprint", facts.token.fingerprint},
                     {"problem", facts.token.problem}}},
      {"rendezvous", Json{{"file", facts.rendezvous.file},
                          {"address", facts.rendezvous.address},
                          {"answers", facts.rendezvous.answers},
                          {"problem", facts.rendezvous.problem}}},
      {"fabrics", list_of(facts.fabrics)},
      {"clock_offset", facts.clock_offset},
      {"clock_error", facts.clock_error},
      {"rails", list_of(facts.rails)},
      {"rail_problem", facts.rail_problem},
  };
}

HostFacts facts_from_json(const Json& json) {
  HostFacts facts;
  facts.name = json.at("name").get<std::string>();
  facts.problem = json.at("problem").get<std::string>();
  facts.ranks = json.at("ranks");
  facts.hostname = json.at("hostname").get<std::string>();
  facts.version = json.at("version").get<std::string>();
  facts.wire_version = json.at("wire_version");
  facts.build = json.at("build").get<std::string>();
  facts.kernel = json.at("kernel").get<std::string>();
  facts.processor = json.at("processor").get<std::string>();
  facts.memlock = json.at("memlock");
  facts.open_files = json.at("open_files");
  facts.cores = json.at("cores");
  facts.all_cores = json.at("all_cores");
  facts.memory = json.at("memory");
  facts.memory_available = json.at("memory_available");
  facts.container_memory = json.at("container_memory");
  facts.shm_size = json.at("shm_size");
  facts.shm_free = json.at("shm_free");
  facts.rdma_devices = json.at("rdma_devices").get<Texts>();
  for (const Json& one : json.at("interfaces"))
    facts.interfaces.push_back(interface_from_json(one));
  facts.settings = json.at("settings").get<std::map<std::string, std::string>>();
  facts.setting_problems = json.at("setting_problems").get<Texts>();
  facts.setting_warnings = json.at("setting_warnings").get<Texts>();
  facts.tune_problem = json.at("tune_problem").get<std::string>();
  const Json& token = json.at("token");
  facts.token = {token.at("source"), token.at("fingerprint"), token.at("problem")};
  const Json& meeting = json.at("rendezvous");
  facts.rendezvous = {meeting.at("file"), meeting.at("address"), meeting.at("answers"),
                      meeting.at("problem")};
  for (const Json& one : json.at("fabrics")) facts.fabrics.push_back(fabric_from_json(one));
  facts.clock_offset = json.at("clock_offset");
  facts.clock_error = json.at("clock_error");
  for (const Json& one : json.at("rails")) facts.rails.push_back(rail_from_json(one));
  facts.rail_problem = json.at("rail_problem").get<std::string>();
  return facts;
}

Json to_json(const Reach& reach) {
  return {{"from", reach.from},
          {"to", reach.to},
          {"rail", reach.rail},
          {"address", reach.address},
          {"own", reach.own},
          {"route_error", reach.route_error},
          {"connect_error", reach.connect_error},
          {"answered", reach.answered},
          {"bulk", reach.bulk},
          {"packet", reach.packet},
          {"common_packet", reach.common_packet},
          {"small_arrived", reach.small_arrived},
          {"full_arrived", reach.full_arrived},
          {"common_arrived", reach.common_arrived}};
}

Reach reach_from_json(const Json& json) {
  return {.from = json.at("from"),
          .to = json.at("to"),
          .rail = json.at("rail"),
          .address = json.at("address"),
          .own = json.at("own"),
          .route_error = json.at("route_error"),
          .connect_error = json.at("connect_error"),
          .answered = json.at("answered"),
          .bulk = json.at("bulk"),
          .packet = json.at("packet"),
          .common_packet = json.at("common_packet"),
          .small_arrived = json.at("small_arrived"),
          .full_arrived = json.at("full_arrived"),
          .common_arrived = json.at("common_arrived")};
}

Json to_json(const JobResult& result) {
  return {{"transport", result.transport},
          {"cases", result.cases},
          {"wrong", result.wrong},
          {"links", list_of(result.links)}};
}

JobResult job_result_from_json(const Json& json) {
  JobResult result;
  result.ran = true;
  result.transport = json.at("transport").get<std::string>();
  result.cases = json.at("cases");
  result.wrong = json.at("wrong").get<Texts>();
  for (const Json& one : json.at("links")) result.links.push_back(link_from_json(one));
  return result;
}

}  // namespace tutti::tool
