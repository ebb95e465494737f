// The stages of a pipeline as text.
#include "penstock/base/error.h"
#include "penstock/runtime/pipeline.h"

namespace penstock {

std::vector<std::string> Pipeline::describe_stages() const {
  std::vector<std::string> lines;
  for (const StagePart& part : stages().parts) {
    std::string line = say("stage ", part.id.value(), ":");
    for (int n : part.nodes) line += " " + stages().graph.nodes[static_cast<std::size_t>(n)].name;
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace penstock
