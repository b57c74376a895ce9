#include "topology/graph_json.h"

#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace tutti {
namespace {

GraphNode node_from(const Json& json) {
  const std::string kind = json.at("kind").get<std::string>();
  const std::optional<NodeKind> known = parse_node_kind(kind);
  if (!known) {
    throw Error(ErrorCode::invalid_argument, cat("unknown node kind ", in_quotes(kind)));
  }
  GraphNode node{.kind = *known,
                 .host = json.value("host", 0),
                 .number = json.value("number", -1),
                 .name = printable(json.value<std::string>("name", ""), 60)};
  if (node.host < -1 || node.host >= kMostNodes) {
    throw Error(ErrorCode::invalid_argument, cat("host ", node.host, " is out of range"));
  }
  return node;
}

GraphLink link_from(const Json& json) {
  const std::string kind = json.at("class").get<std::string>();
  const std::optional<LinkClass> known = parse_link_class(kind);
  if (!known) {
    throw Error(ErrorCode::invalid_argument, cat("unknown link class ", in_quotes(kind)));
  }
  return {.from = json.at("from").get<int>(),
          .to = json.at("to").get<int>(),
          .kind = *known,
          .GBps = json.at("bandwidth_GBps").get<double>(),
          .latency_us = json.value("latency_us", 0.0),
          .assumed = json.value("assumed", false)};
}

template <typename Add>
void read_each(const Json& array, const char* name, const std::string& file, Add add) {
  for (size_t i = 0; i < array.size(); ++i) {
    try {
      add(array.at(i));
    } catch (const Error& error) {
      throw Error(ErrorCode::invalid_argument, error.what(),
                  {.where = cat(file, ", ", name, "[", i, "]")});
    }
  }
}

}  // namespace

Json to_json(const Graph& graph) {
  Json nodes = Json::array();
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const GraphNode& node = graph.nodes()[i];
    nodes.push_back({{"id", i},
                     {"kind", name(node.kind)},
                     {"host", node.host},
                     {"number", node.number},
                     {"name", node.name}});
  }
  Json links = Json::array();
  for (const GraphLink& link : graph.links()) {
    Json one = {{"from", link.from},
                {"to", link.to},
                {"class", name(link.kind)},
                {"bandwidth_GBps", link.GBps},
                {"latency_us", link.latency_us}};
    if (link.assumed) one["assumed"] = true;
    links.push_back(std::move(one));
  }
  Json json = {{"nodes", std::move(nodes)}, {"links", std::move(links)}};
  if (graph.ends_forward()) json["ends_forward"] = true;
  return json;
}

Graph parse_graph_json(std::string_view json, const std::string& file) {
  Json parsed;
  try {
    parsed = Json::parse(json);
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, error.what(), {.where = file});
  }
  const auto has_array = [&](const char* name) {
    return parsed.contains(name) && parsed[name].is_array();
  };
  if (!parsed.is_object() || !has_array("nodes") || !has_array("links")) {
    throw Error(ErrorCode::invalid_argument,
                R"(a graph must be an object with "nodes" and "links")",
                {.where = file, .remedy = "write one by `tutti topo --json FILE`"});
  }
  if (parsed["nodes"].size() > size_t{kMostNodes}) {
    throw Error(ErrorCode::invalid_argument, cat("more than ", kMostNodes, " nodes"),
                {.where = file});
  }
  Graph graph;
  if (parsed.value("ends_forward", false)) graph.let_ends_forward();
  read_each(parsed["nodes"], "nodes", file, [&](const Json& node) { graph.add(node_from(node)); });
  read_each(parsed["links"], "links", file,
            [&](const Json& link) { graph.connect(link_from(link)); });
  return graph;
}

}  // namespace tutti
