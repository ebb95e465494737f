#include "penstock/model/graph.h"

#include "penstock/base/error.h"

namespace penstock {

std::string Graph::name_of(const ValueRef& value) const {
  if (value.is_graph_input()) return say("input ", value.output);
  const Node& node = nodes[static_cast<std::size_t>(value.node)];
  return node.outputs == 1 ? node.name : say(node.name, ":", value.output);
}

}  // namespace penstock
