// Two pipelines side by side in one MPI job, each on a half of its processes, with its own learning rate.
//
//   mpirun -n 4 --oversubscribe build/release/examples/split_communicator
#include <iostream>

#include <mpi.h>
#include <penstock/penstock.h>
#include <penstock/transport/joined_processes.h>

namespace ps = penstock;

double loss_with(double rate, MPI_Comm processes) {
  ps::World world({.stages = 2, .processes = ps::mpi_processes(MPI_Comm_c2f(processes))});
  ps::Mlp net(ps::MlpOptions{.inputs = 784, .hidden = {64, 64}, .classes = 10});
  ps::Pipeline pipeline(world, net, ps::cross_entropy, {.micro_batches = 4, .schedule = "1f1b"});
  pipeline.optimize_with(ps::sgd({.learning_rate = rate}));
  double loss = 0;
  for (int step = 0; auto& [images, labels] : ps::mnist(ps::find_data("mnist"), {.batch_size = 32})) {
    loss = pipeline.train_step(images, labels).loss();
    if (++step == 50) break;
  }
  world.finish();
  return loss;
}

int main(int argc, char** argv) try {
  int level = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);  // ranks 0 and 2, ranks 1 and 3
  double loss = loss_with(rank % 2 == 0 ? 0.1 : 0.001, half), best = 0;
  MPI_Allreduce(&loss, &best, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);  // the program's own message
  if (rank == 0) std::cout << "the loss is " << loss << ", the best of both " << best << "\n";
  MPI_Comm_free(&half);
  MPI_Finalize();
} catch (const std::exception& error) {
  std::cerr << error.what() << std::endl;
  MPI_Abort(MPI_COMM_WORLD, 1);
}
