// The template of schedule_html(), with the placeholders @LOOK@ and @SCHEDULE@ for JSON. Inside this module only.
#pragma once

#include <string_view>

namespace penstock {

extern const std::string_view schedule_page;  // schedule_page.html

}  // namespace penstock
