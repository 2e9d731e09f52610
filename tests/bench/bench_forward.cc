// FP32 forwards of a model in evaluation, as `predict` and a run's evaluations compute them, for a
// script that lets another engine take turns (tests/process/forward_speed.py).
//
// bench_forward MODEL [--onnx FILE] [--batch 1] [--backend cpu] [--threads 1] [--rows NAME]
//
// --onnx: writes the model with the same weights first. --rows: an instruction set of backend cpu in
// place of the best. Answers each line N of standard input with a line of N numbers: milliseconds of
// processor time of a forward.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backends/cpu/cpu_backend.h"
#include "partition/export/onnx_model.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/status_macros.h"
#include "tests/bench/bench_tools.h"
#include "worker/measure/random_tensors.h"
#include "worker/stage/stage_executor.h"

namespace runnel {
namespace {

absl::Status Answer(StageExecutor& executor, const Payload& input, const Payload& labels,
                    int64_t batch) {
  std::string line;
  while (std::getline(std::cin, line)) {
    const int runs = std::atoi(line.c_str());
    for (int run = 0; run < runs; ++run) {
      const double begin = CpuMs();
      RUNNEL_RETURN_IF_ERROR(executor.Evaluate(batch, input, labels).status());
      std::printf("%s%.4f", run == 0 ? "" : " ", CpuMs() - begin);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

absl::Status Run(const std::string& name, Flags flags) {
  const int64_t batch = std::atoll(flags["--batch"].c_str());
  const int threads = std::atoi(flags["--threads"].c_str());
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(name));
  RUNNEL_ASSIGN_OR_RETURN(const ModelState state, InitialState(model, 1));
  if (const std::string& file = flags["--onnx"]; !file.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(const std::string onnx, ModelToOnnx(model, state, batch));
    std::ofstream(file, std::ios::binary) << onnx;
  }
  const std::string& rows = flags["--rows"];
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                          rows.empty() ? MakeBackend(flags["--backend"], threads)
                                       : MakeCappedCpuBackend(rows, threads));
  StageExecutorOptions options;
  options.model = model;
  options.last_layer = model.layer_count() - 1;
  options.training.dataset_samples = options.training.batch_size = batch;
  options.training.eval_batch_size = options.eval_samples = batch;
  RUNNEL_ASSIGN_OR_RETURN(options.recipe, FindRecipe("fp32"));
  options.one_in_flight = true;
  BufferPool pool;
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<StageExecutor> executor,
                          StageExecutor::Create(std::move(options), backend.get(), &pool));
  RUNNEL_RETURN_IF_ERROR(executor->ImportState(state));
  return Answer(*executor, RandomTensor(pool, batch * model.input.elements(), 0),
                RandomLabels(pool, batch, model.classes, 0), batch);
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  runnel::Flags flags = {
      {"--batch", "1"}, {"--backend", "cpu"}, {"--threads", "1"}, {"--onnx", ""}, {"--rows", ""}};
  if (argc < 2 || !runnel::ReadFlags(argc, argv, flags, 2)) {
    std::cerr << "usage: bench_forward MODEL [--onnx FILE] [--batch 1] [--backend cpu] "
                 "[--threads 1] [--rows NAME]\n";
    return 2;
  }
  const absl::Status status = runnel::Run(argv[1], flags);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
