// The page of schedule_html(), with marks @LOOK@ and @SCHEDULE@ where JSON goes. Inside this module only.
#pragma once

#include <string_view>

namespace penstock {

extern const std::string_view schedule_page;  // schedule_page.html

}  // namespace penstock
