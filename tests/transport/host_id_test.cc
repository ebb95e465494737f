#include "penstock/transport/host_id.h"

#include <string_view>

#include <gtest/gtest.h>

namespace penstock::host_id_test {
namespace {

Environment on_host(const char* name) {
  return [name](const char* variable) { return std::string_view(variable) == host_variable ? name : nullptr; };
}

TEST(HostId, is_the_same_for_all_processes_of_a_host_and_can_be_overridden) {
  EXPECT_NE(host_id(), 0u);
  EXPECT_EQ(host_id(on_host(nullptr)), host_id(on_host("")));
  EXPECT_EQ(host_id(on_host("a")), host_id(on_host("a")));
  EXPECT_NE(host_id(on_host("a")), host_id(on_host("b")));
  EXPECT_NE(host_id(on_host("a")), host_id(on_host(nullptr)));
}

}  // namespace
}  // namespace penstock::host_id_test
