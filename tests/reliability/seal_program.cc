// Reads the text of a manifest without its first line from standard input, and writes it with that line, the checksum.
#include <iostream>
#include <iterator>
#include <string>

#include "penstock/checkpoint/manifest.h"

int main() {
  const std::string body{std::istreambuf_iterator<char>(std::cin), {}};
  std::cout << penstock::sealed(body);
  return std::cout.flush().good() ? 0 : 1;
}
