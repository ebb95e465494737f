// Messages about invalid JSON.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace penstock {

/// One line that describes `error`, which nlohmann::json found in `text`. `what` names the text ("the trace"). The line
/// has the position of the error, and a hint if the text is truncated.
std::string complaint_about_json(std::string_view text, std::string_view what, const nlohmann::json::exception& error);

}  // namespace penstock
