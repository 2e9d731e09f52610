// INT8 inference of whole networks at 224 x 224, one thread, in CPU time: our executor, oneDNN's
// u8s8s32 primitives over the same layers, and our FP32 (backend cpu), taking turns. Medians, and
// ratios of them. The register-only peak stands beside them: this tells slow phases.
//
//   bench_inference [--models A,B] [--batches 1,8] [--rounds 7] [--nodes on]
//                   [--kernels NAME] [--summary F.json]
//
// --kernels: an instruction set of backend cpu in place of the best, for ours only: what a processor
// without the better instruction sets would run.

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "kernels/backends/cpu/lone_kernels.h"
#include "kernels/models/graph_runner.h"
#include "kernels/models/node_profile.h"
#include "kernels/models/quantize/quantizer.h"
#include "nlohmann/json.hpp"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/status_macros.h"
#include "tests/bench/bench_kernels_peak.h"
#include "tests/bench/peer_onednn_graph.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::bench {
namespace {

constexpr int kPeakTurns = 50;  // of some 100 us

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Contender {
  std::function<void()> run;
  std::vector<double> seconds = {};
};

void TakeTurns(int rounds, std::map<std::string, Contender>& contenders) {
  for (auto& [name, contender] : contenders) contender.run();
  for (int round = 0; round < rounds; ++round) {
    for (auto& [name, contender] : contenders) {
      const double start = CpuSeconds();
      contender.run();
      contender.seconds.push_back(CpuSeconds() - start);
    }
  }
}

absl::StatusOr<inference::Int8Graph> Quantized(const ModelSpec& model,
                                               const inference::FoldedGraph& folded,
                                               bool winograd) {
  inference::QuantizeOptions options;
  RUNNEL_ASSIGN_OR_RETURN(options.calibration, inference::ParseCalibration("absmax"));
  if (winograd) options.winograd = inference::WinogradUse::kInt4Int6;
  inference::Quantizer quantizer(folded, options);
  quantizer.Observe(0, RandomValues(1, 0, model.input.elements()), 1);
  return quantizer.Finish();
}

int64_t Operations(const inference::Int8Graph& graph) {
  int64_t macs = 0;
  for (const inference::Int8Node& n : graph.nodes) {
    if (n.node.kind == inference::NodeKind::kConv) macs += n.node.shape.macs();
  }
  return 2 * macs;
}

// What each node takes, one sample: beside the peak of the inner loop over operands in the nearest
// cache, and that of products between registers.
absl::Status PrintNodes(const inference::Int8Graph& graph, inference::GraphRunner& runner) {
  const double peak = cpu::LoneKernelTimer(1).MeasureInt8Peak();
  const double registers = MeasurePeaks(1).int8_gops * 1e9;
  std::printf("peak of the inner loop %.0f GOP/s, between registers %.0f GOP/s\n", peak * 1e-9,
              registers * 1e-9);
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<double> seconds, runner.TimeNodes(1, 21));
  const std::vector<inference::NodeFacts> facts =
      inference::DescribeNodes(graph, [&runner](size_t node) { return runner.kernel(node); });
  for (size_t i = 0; i < facts.size(); ++i) {
    const double rate = 2.0 * static_cast<double>(facts[i].macs) / seconds[i];
    std::printf("%3zu %-14s %-16s %-24s %8.1f us %6.0f GOP/s %5.3f %5.3f\n", i,
                facts[i].name.c_str(), facts[i].shape.c_str(), facts[i].kernel.c_str(),
                seconds[i] * 1e6, rate * 1e-9, rate / peak, rate / registers);
  }
  return absl::OkStatus();
}

struct Options {
  bool nodes = false;
  std::vector<std::string> models = {"resnet50_imagenet", "vgg16_bn_imagenet",
                                     "mobilenet_v1_imagenet"};
  std::vector<int64_t> batches = {1, 8};
  int rounds = 7;
  std::string kernels = CpuInstructionSets().front();
  std::string summary;
};

absl::Status BenchModel(const std::string& name, const Options& options, nlohmann::json& rows) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(name));
  RUNNEL_ASSIGN_OR_RETURN(const ModelState state, InitialState(model, 1));
  RUNNEL_ASSIGN_OR_RETURN(const inference::FoldedGraph folded,
                          inference::FoldModel(model, state, true));
  RUNNEL_ASSIGN_OR_RETURN(const inference::Int8Graph graph, Quantized(model, folded, false));
  RUNNEL_ASSIGN_OR_RETURN(const inference::Int8Graph tiles, Quantized(model, folded, true));
  const bool has_winograd = std::any_of(tiles.nodes.begin(), tiles.nodes.end(),
                                        [](const inference::Int8Node& n) { return n.winograd; });
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend("cpu", 1));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> capped,
                          MakeCappedCpuBackend(options.kernels, 1));
  for (int64_t batch : options.batches) {
    const std::vector<float> samples = RandomValues(1, 0, batch * model.input.elements());
    std::vector<float> logits(batch * model.classes);
    absl::Status status;
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<inference::GraphRunner> ours,
                            inference::GraphRunner::Make(graph, *capped));
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<inference::GraphRunner> winograd,
                            inference::GraphRunner::Make(tiles, *capped));
    const auto run = [&](inference::GraphRunner& runner) {
      status.Update(runner.Run(
          {reinterpret_cast<const std::byte*>(samples.data()), samples.size() * sizeof(float)},
          batch, {reinterpret_cast<std::byte*>(logits.data()), logits.size() * sizeof(float)}));
    };
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<OneDnnGraph> peer, MakeOneDnnGraph(graph, batch));
    RUNNEL_ASSIGN_OR_RETURN(TestPipeline fp32,
                            TestPipeline::Make(model, {}, batch, backend.get(), 1));
    const std::vector<int32_t> labels(batch, 0);
    std::map<std::string, Contender> contenders;
    contenders["int8"].run = [&] { run(*ours); };
    double peak_operations = 0;
    contenders["register_peak"].run = [&] {
      peak_operations = 0;
      for (int i = 0; i < kPeakTurns; ++i) peak_operations += PeakInt8Turn();
    };
    contenders["onednn_int8"].run = [&] { peer->Run(); };
    contenders["fp32"].run = [&] {
      status.Update(fp32.Forward(Part::kForwardEval, samples.data(), labels.data(), {}));
    };
    if (has_winograd) {
      contenders["int8_winograd"].run = [&] { run(*winograd); };
    }
    TakeTurns(options.rounds, contenders);
    RUNNEL_RETURN_IF_ERROR(status);
    nlohmann::json row = {{"model", name}, {"batch", batch}, {"kernels", options.kernels}};
    for (const auto& [who, contender] : contenders) {
      row[who + "_ms"] = Median(contender.seconds) * 1e3;
    }
    const double int8 = row["int8_ms"];
    row["fp32_over_int8"] = row["fp32_ms"].get<double>() / int8;
    row["onednn_over_int8"] = row["onednn_int8_ms"].get<double>() / int8;
    row["register_peak_gops"] = 1e-6 * peak_operations / row["register_peak_ms"].get<double>();
    row["int8_gops"] = 1e-6 * static_cast<double>(Operations(graph) * batch) / int8;
    if (has_winograd) row["winograd_gain"] = int8 / row["int8_winograd_ms"].get<double>();
    if (options.nodes) {
      RUNNEL_RETURN_IF_ERROR(PrintNodes(graph, *ours));
      if (has_winograd) RUNNEL_RETURN_IF_ERROR(PrintNodes(tiles, *winograd));
    }
    std::printf("%s\n", row.dump().c_str());
    std::fflush(stdout);
    rows.push_back(std::move(row));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--models") options.models = absl::StrSplit(value, ',');
    if (flag == "--rounds") options.rounds = std::max(1, std::atoi(value.c_str()));
    if (flag == "--summary") options.summary = value;
    if (flag == "--kernels") options.kernels = value;
    if (flag == "--nodes") options.nodes = value == "on";
    if (flag == "--batches") {
      options.batches.clear();
      for (absl::string_view text : absl::StrSplit(value, ',')) {
        if (int64_t batch = 0; absl::SimpleAtoi(text, &batch)) options.batches.push_back(batch);
      }
    }
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& model : options.models) {
    if (const absl::Status status = BenchModel(model, options, rows); !status.ok()) {
      std::fprintf(stderr, "%s: %s\n", model.c_str(), status.ToString().c_str());
      return 1;
    }
  }
  if (!options.summary.empty()) std::ofstream(options.summary) << rows.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace runnel::bench

int main(int argc, char** argv) {
  // OpenMP reads its environment before main.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    setenv("OMP_NUM_THREADS", "1", 1);
    execv("/proc/self/exe", argv);
  }
  return runnel::bench::Main(argc, argv);
}
