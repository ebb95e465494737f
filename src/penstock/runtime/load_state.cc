#include "penstock/runtime/load_state.h"

#include <set>
#include <sstream>

#include "penstock/base/error.h"
#include "penstock/world/collectives.h"

namespace penstock {
namespace {

/// Lines: "+name" for a tensor of this rank that matches `state`, "!error" for one that does not.
std::string findings(const std::vector<Stage::Held>& own, const std::map<std::string, torch::Tensor>& state) {
  std::string lines;
  for (const Stage::Held& held : own) {
    const auto found = state.find(held.name);
    if (found == state.end()) {
      lines +=
          say("!the network has '", held.name, "' of shape ", held.value.sizes(), ", which the state does not have\n");
      continue;
    }
    const torch::Tensor& value = found->second;
    const bool fits = value.defined() && value.sizes() == held.value.sizes() && value.dtype() == held.value.dtype();
    lines += fits ? say("+", held.name, "\n")
                  : say("!'", held.name, "' is ", held.value.dtype().name(), " of shape ", held.value.sizes(),
                        " in the network and ", value.defined() ? value.dtype().name() : "nothing", " of shape ",
                        value.defined() ? value.sizes() : at::IntArrayRef(), " in the state\n");
  }
  return lines;
}

/// The error text for all ranks' lines, on rank 0; empty where all tensors match.
std::string validation_of(const std::string& lines, const std::map<std::string, torch::Tensor>& state) {
  std::set<std::string> used;
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) {
    if (line.starts_with('!')) return line.substr(1);
    used.insert(line.substr(1));
  }
  for (const auto& [name, value] : state)
    if (!used.contains(name)) return say("the state has '", name, "', which the network does not have");
  return "";
}

}  // namespace

std::string load_values(const RankContext& context, const Tag& tag, const std::vector<Stage::Held>& own,
                        const std::map<std::string, torch::Tensor>& state) {
  const auto decide = [&](const std::vector<Message>& all) {
    std::string lines;
    for (const Message& message : all) lines += text_in(message);
    return message_of(validation_of(lines, state));
  };
  const std::string result =
      text_in(agree(context, control_tag(tag.pipeline, Topic::state, tag.step), message_of(findings(own, state)),
                    decide, {.parts = "what fits of a state", .decision = "whether a state fits"}));
  if (!result.empty()) return result;
  const torch::NoGradGuard no_grad;
  for (const Stage::Held& held : own) torch::Tensor(held.value).copy_(state.at(held.name));
  return result;
}

}  // namespace penstock
