#include "penstock/launch/free_port.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

namespace penstock::free_port_test {
namespace {

/// Listens at the first port from `first` on that is free on the loopback interface, while it lives.
class Listener {
 public:
  explicit Listener(int first) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (port_ = first; port_ < 65'536; ++port_) {
      address.sin_port = htons(static_cast<std::uint16_t>(port_));
      if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) break;
    }
    ::listen(socket_, 1);
  }
  ~Listener() { ::close(socket_); }

  int port() const { return port_; }

 private:
  int socket_;
  int port_ = 0;
};

TEST(FreePort, is_none_that_the_kernel_gives_to_connections) {
  const PortRange ephemeral = ephemeral_ports();
  ASSERT_LE(ephemeral.first, ephemeral.last);
  for (int i = 0; i < 100; ++i) {
    const int port = free_port();
    EXPECT_GE(port, 10'000);
    EXPECT_LE(port, 65'535);
    EXPECT_TRUE(port < ephemeral.first || port > ephemeral.last) << port;
  }
}

TEST(FreePort, is_not_taken) {
  // Of the candidates that are left, 4 of 5 are taken, on one address.
  const Listener first(10'000), second(first.port() + 1), third(second.port() + 1), fourth(third.port() + 1);
  const int last = fourth.port() + 1;
  for (int i = 0; i < 20; ++i) {
    const int port = free_port({last + 1, 65'535});
    for (const Listener* taken : {&first, &second, &third, &fourth}) EXPECT_NE(port, taken->port());
  }
}

TEST(FreePort, is_chosen_by_the_kernel_where_it_may_give_away_all) { EXPECT_GT(free_port({1, 65'535}), 0); }

}  // namespace
}  // namespace penstock::free_port_test
