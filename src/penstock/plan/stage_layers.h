// The layers of each stage of a run as one line of text, for the settings of a trace.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// The names of optional settings of a trace that advise() reads: the layers of the stages in the format below, and the
/// text of a cost file (docs/cost_file.md) with all of these layers.
inline constexpr const char* layers_setting = "layers";
inline constexpr const char* layer_costs_setting = "layer_costs";

/// Per stage, the names of its layers in order of execution.
using StageLayers = std::vector<std::vector<std::string>>;

/// "embedding,block0;block1,head": semicolons separate stages, commas separate layers. Throws DataError for a name that
/// is empty or contains one of them, and for a stage without layers.
std::string write_stage_layers(const StageLayers& stages);
/// read_stage_layers(write_stage_layers(x)) == x. Throws DataError for malformed text.
StageLayers read_stage_layers(std::string_view text);

}  // namespace penstock
