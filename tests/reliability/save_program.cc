// Writes small checkpoints of the steps FIRST to LAST into FOLDER, and prints a line when each is on the disk.
//
//   save_program FOLDER FIRST LAST
#include <cstdlib>
#include <iostream>

#include "tests/checkpoint/small_checkpoint.h"

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const std::int64_t first = std::atoll(arguments[2]), last = std::atoll(arguments[3]);
  try {
    penstock::CheckpointWriter writer({arguments[1], 2, first - 1});
    for (std::int64_t step = first; step <= last; ++step) {
      penstock::test::save_small(writer, step);
      std::cout << "checkpoint step " << step << " durable" << std::endl;
    }
    return 0;
  } catch (const penstock::Misuse& error) {
    std::cerr << error.what() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
