#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>

#include <CLI/CLI.hpp>

#include <ATen/Config.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/version.h>

#include "penstock/base/clock.h"
#include "penstock/base/cores.h"
#include "penstock/base/error.h"
#include "penstock/cli/verbs.h"
#include "penstock/kernels/kernels.h"
#include "penstock/transport/joining/launch_environment.h"
#include "penstock/transport/joining/start.h"
#include "penstock/transport/transport.h"

namespace penstock::cli {
namespace {

/// The limit of a container's processor time, in cores; 0: unknown or none.
double quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::stod(quota) / period;
}

#ifdef __clang__
constexpr const char* compiler = "clang " __clang_version__;
#else
constexpr const char* compiler = "gcc " __VERSION__;
#endif

/// The value if it is a number; others are not shown, because a report of this verb is copied into public places.
std::string number_in(const char* variable) {
  const char* value = std::getenv(variable);
  if (!value) return "(unset)";
  const std::string text = value;
  return text.find_first_not_of("0123456789,") == std::string::npos ? text : "(no number)";
}

std::string gpus() {
  const std::size_t count = torch::cuda::device_count();
  if (count == 0) return "none that this LibTorch can use: --device auto is the CPU";
  return say(count, ": with --device cuda or auto the ranks of a host use cuda:0 to cuda:", count - 1, " in rotation");
}

/// 10^9 operations per second of products of 512 x 1024 and 1024 x 1024 numbers: the best of some.
double gigaflops(c10::ScalarType type) {
  const torch::Tensor left = torch::ones({512, 1024}, type), right = torch::ones({1024, 1024}, type);
  double best_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 6; ++i) {
    const std::int64_t begin = now_ns();
    torch::matmul(left, right);
    best_s = std::min(best_s, s_since(begin));
  }
  return 2 * 512.0 * 1024 * 1024 / best_s * 1e-9;
}

int doctor() {
  at::set_num_threads(1);
  std::ostringstream out;
  const int cores = cores_of_host();
  joining::LaunchedAs launched;
  std::vector<std::string> findings;
  try {
    launched = joining::launched_as();
  } catch (const ConfigError& error) {
    findings.emplace_back(error.what());
  }

  out << "penstock     " << PENSTOCK_VERSION << ", Apache-2.0, sources " << joining::source_digest() << "\n"
      << "compiled by  " << compiler << "\n"
      << "LibTorch     " << TORCH_VERSION << " (CPU capability " << at::get_cpu_capability() << ")\n"
      << "BLAS         " << (at::hasMKL() ? "MKL" : "not MKL") << ", oneDNN " << (at::hasMKLDNN() ? "yes" : "no")
      << "\n"
      << "kernels      "
      << (has_cpu_kernels() ? "fixed, tuned" : "fixed; built without tuned ones (PENSTOCK_CPU_KERNELS=OFF)") << "\n"
      << "products     fp32 " << std::lround(gigaflops(at::kFloat)) << ", bf16 "
      << std::lround(gigaflops(at::kBFloat16)) << " GFLOP/s on one core"
      << (multiplies_bf16() ? "\n" : "; this processor does not multiply bf16\n") << "GPU          " << gpus() << "\n"
      << "MPI          " << (mpi_available() ? "built in" : "not built in (PENSTOCK_MPI=OFF, or none found)") << "\n"
      << "Gloo         " << (gloo_available() ? "built in" : "not built in (this LibTorch has none)") << "\n"
      << "NCCL         " << (nccl_available() ? "built in" : "not built in (PENSTOCK_NCCL=OFF, or none found)") << "\n"
      << "cores        " << cores << ", usable here " << usable_cores();
  if (const double quota = quota_cores(); quota > 0) {
    out << ", quota " << quota;
    if (quota < usable_cores()) findings.push_back("the container grants less processor time than it shows cores");
  }
  out << "\nstarted by   " << launched.by << ", process " << launched.rank << " of " << launched.size << "\n"
      << "threads      a rank uses 1 (--threads changes it), whatever OMP_NUM_THREADS says: "
      << number_in("OMP_NUM_THREADS") << "\n";

  if (usable_cores() < cores && launched.size > 1)
    findings.push_back("this process may use " + std::to_string(usable_cores()) + " of " + std::to_string(cores) +
                       " cores: with --threads above that, start with mpirun --bind-to none");
  if (launched.size > cores)
    findings.push_back(std::to_string(launched.size) + " processes share " + std::to_string(cores) +
                       " cores: steps take longer than a simulation says");
  if (!at::hasMKL()) findings.push_back("LibTorch without MKL: matrix products may be slow");
  for (const std::string& finding : findings) out << "note: " << finding << "\n";
  if (findings.empty()) out << "no problems\n";
  std::cout << out.str() << std::flush;  // in one write, so that the output of several processes does not mix
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("doctor", "properties of this machine, and problems with them");
  verb->footer("Example:\n  penstock doctor\n  mpirun -n 2 penstock doctor");
  set_work(*verb, exit_code, doctor);
}

}  // namespace penstock::cli
