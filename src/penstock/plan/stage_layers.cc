#include "penstock/plan/stage_layers.h"

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// Removes the text up to the next `mark`, and the mark, from `text`, and returns it. Sets `is_last` if there is no
/// mark.
std::string_view take_part(std::string_view& text, char mark, bool& is_last) {
  const std::size_t at = text.find(mark);
  is_last = at == std::string_view::npos;
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(is_last ? text.size() : at + 1);
  return part;
}

}  // namespace

std::string write_stage_layers(const StageLayers& stages) {
  require<DataError>(!stages.empty(), "there are no stages to name the layers of");
  std::string text;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    require<DataError>(!stages[s].empty(), "stage ", s, " has no layers to name");
    if (s > 0) text += ';';
    for (std::size_t layer = 0; layer < stages[s].size(); ++layer) {
      const std::string& name = stages[s][layer];
      require<DataError>(!name.empty() && name.find_first_of(",;") == std::string::npos, "layer ", layer, " of stage ",
                         s, " is named '", name, "': a name is not empty and has no ',' or ';' in it");
      if (layer > 0) text += ',';
      text += name;
    }
  }
  return text;
}

StageLayers read_stage_layers(std::string_view text) {
  StageLayers stages;
  for (bool is_last_stage = false; !is_last_stage;) {
    std::string_view stage = take_part(text, ';', is_last_stage);
    stages.emplace_back();
    for (bool is_last_layer = false; !is_last_layer;) {
      stages.back().emplace_back(take_part(stage, ',', is_last_layer));
      require<DataError>(!stages.back().back().empty(), "layer ", stages.back().size() - 1, " of stage ",
                         stages.size() - 1, " has no name: write layers as a,b;c,d");
    }
  }
  return stages;
}

}  // namespace penstock
