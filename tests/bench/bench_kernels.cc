// The kernels and training steps of backend cpu next to the best of others in the same run: oneDNN,
// OpenBLAS, LibTorch.
//
// bench_kernels [--only gemm,conv,step,scaling] [--models vgg11,...] [--backend NAME] [--threads N]
//               [--rounds N] [--steps N] [--summary FILE] [--benchmark_filter=REGEX ...]
//
// Medians of CPU time (wall-clock with more than one thread); ours and the peers take turns. Shares
// are of a register-only loop that takes turns with them too; `peak` of the summary is the better
// of two such measurements, at the start and at the end. What peak memory means:
// bench_kernels_memory.h.

#include "tests/bench/bench_kernels.h"

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/backends/backend.h"
#include "tests/bench/bench_kernels_memory.h"
#include "tests/bench/bench_kernels_peak.h"
#include "tests/bench/peer_torch.h"

namespace runnel::bench {
namespace {

constexpr char kUsage[] =
    "usage: bench_kernels [--only gemm,conv,step,scaling] [--models A,B] [--backend NAME]\n"
    "                     [--threads N] [--rounds N] [--steps N] [--summary FILE]\n"
    "                     [--benchmark_filter=REGEX]\n";

// Rows print themselves, with columns that people compare.
class QuietReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

// OpenMP and OpenBLAS read their thread counts when they are loaded, so the binary starts itself
// again if they are not as they should be.
void PinLibraryThreads(int threads, char** argv) {
  const std::string wanted = std::to_string(threads);
  bool restart = false;
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && wanted == value) continue;
    setenv(name, wanted.c_str(), 1);
    restart = true;
  }
  if (!restart) return;
  execv("/proc/self/exe", argv);
  std::perror("execv");
  std::exit(2);
}

bool ParseCount(const std::string& text, int* count) {
  return absl::SimpleAtoi(text, count) && *count >= 1;
}

// False for what is not known. Flags of Google Benchmark are left alone.
bool ParseFlags(const std::vector<std::string>& arguments, Options* options) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    if (absl::StartsWith(flag, "--benchmark_")) continue;
    if (i + 1 == arguments.size()) return false;
    const std::string& value = arguments[++i];
    bool good = true;
    if (flag == "--only") {
      options->only = absl::StrSplit(value, ',');
    } else if (flag == "--models") {
      options->models = absl::StrSplit(value, ',');
    } else if (flag == "--backend") {
      options->backend = value;
    } else if (flag == "--summary") {
      options->summary = value;
    } else if (flag == "--threads") {
      good = ParseCount(value, &options->threads);
    } else if (flag == "--rounds") {
      good = ParseCount(value, &options->rounds);
    } else if (flag == "--steps") {
      good = ParseCount(value, &options->steps);
    } else {
      return false;
    }
    if (!good) return false;
  }
  return true;
}

void InitializeGoogleBenchmark(int argc, char** argv) {
  std::vector<char*> kept = {argv[0]};
  for (int i = 1; i < argc; ++i) {
    if (absl::StartsWith(argv[i], "--benchmark_")) kept.push_back(argv[i]);
  }
  int count = static_cast<int>(kept.size());
  kept.push_back(nullptr);
  benchmark::Initialize(&count, kept.data());
}

void RunParts(Report& report) {
  const Options& options = report.options;
  const Peaks before = MeasurePeaks(options.threads);
  std::printf("Register-only peak: %.1f GFLOP/s FP32 (%s), %.1f GOP/s INT8 (%s), %d thread(s)\n",
              before.fp32_gflops, PeakFp32Instructions().c_str(), before.int8_gops,
              PeakInt8Instructions().c_str(), options.threads);
  if (options.Has("gemm")) RegisterGemm(report);
  if (options.Has("conv")) RegisterConv(report);
  if (options.Has("step")) RegisterSteps(report);
  if (options.Has("scaling")) RegisterScaling(report);
  QuietReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  const Peaks after = MeasurePeaks(options.threads);
  std::printf("\nRegister-only peak at the end: %.1f GFLOP/s FP32, %.1f GOP/s INT8\n",
              after.fp32_gflops, after.int8_gops);
  report.summary["peak"] = {{"fp32_gflops", std::max(before.fp32_gflops, after.fp32_gflops)},
                            {"int8_gops", std::max(before.int8_gops, after.int8_gops)},
                            {"fp32_gflops_before_after", {before.fp32_gflops, after.fp32_gflops}},
                            {"int8_gops_before_after", {before.int8_gops, after.int8_gops}},
                            {"fp32_instructions", PeakFp32Instructions()},
                            {"int8_instructions", PeakInt8Instructions()}};
}

int Run(int argc, char** argv, const Options& options) {
  InitializeGoogleBenchmark(argc, argv);
  TuneForTorch(options.threads);
  const auto backend = MakeBackend(options.backend, options.threads);
  if (!backend.ok()) {
    std::cerr << backend.status() << "\n";
    return 2;
  }
  Report report{.options = options};
  const char* clock = options.threads == 1 ? "cpu" : "wall";
  report.summary = {{"backend", (*backend)->numerics_class()},
                    {"threads", options.threads},
                    {"clock", clock},
                    {"rounds", options.rounds},
                    {"steps", options.steps}};
  for (const std::string& part : options.only) {
    if (part != "scaling") report.summary[part] = nlohmann::json::array();
  }
  std::printf("%s, %s time, medians of %d rounds (%d of steps)\n",
              (*backend)->numerics_class().c_str(), clock, options.rounds, options.steps);
  RunParts(report);
  if (!options.summary.empty()) {
    std::ofstream file(options.summary);
    file << report.summary.dump(2) << "\n";
    if (!file.flush()) {
      std::cerr << "cannot write " << options.summary << "\n";
      return 2;
    }
  }
  return report.first_error.ok() ? 0 : 1;
}

}  // namespace
}  // namespace runnel::bench

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == runnel::bench::kMemoryChild) {
    return runnel::bench::RunMemoryChild({arguments.begin() + 1, arguments.end()});
  }
  runnel::bench::Options options;
  if (!runnel::bench::ParseFlags(arguments, &options)) {
    std::cerr << runnel::bench::kUsage;
    return 2;
  }
  for (const std::string& part : options.only) {
    if (part == "gemm" || part == "conv" || part == "step" || part == "scaling") continue;
    std::cerr << "'" << part << "' is no part\n" << runnel::bench::kUsage;
    return 2;
  }
  runnel::bench::PinLibraryThreads(options.threads, argv);
  return runnel::bench::Run(argc, argv, options);
}
