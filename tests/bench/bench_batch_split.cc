// Batch splitting (Mandheling, section 3.5) on this machine: T(B) of each product of a training
// step, the slices that the paper's rule takes from it, and what the micro-batch in slices really
// takes; then whole training steps under each --batch-split, in turns. Processor time, random
// values.
//
// bench_batch_split [--model vgg11] [--backend cpu] [--batch 64] [--runs 7] [--steps 15]
//                   [--splits off,auto,4,16] [--summary FILE]

#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/measure/lone_instruction.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/passes/batch_split.h"
#include "kernels/ir/recipe.h"
#include "nlohmann/json.hpp"
#include "partition/zoo/zoo.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"
#include "tests/bench/bench_tools.h"
#include "worker/stage/plain_loop.h"
#include "worker/stage/stage_executor.h"

namespace runnel {
namespace {

constexpr Part kParts[] = {Part::kForward, Part::kInputGradient, Part::kWeightGradient};
constexpr const char* kPartNames[] = {"forward", "input_gradient", "weight_gradient"};

// One product by itself, ready to run.
struct Runner {
  int64_t batch = 0, slice = 0;
  Program program;
  std::unique_ptr<Executable> executable;
  Surroundings around;
  std::vector<double> ms;
};

absl::StatusOr<std::unique_ptr<Runner>> MakeRunner(const Program& program, Part part, size_t index,
                                                   int64_t slice, Backend* backend) {
  auto runner = std::make_unique<Runner>();
  Instruction instruction = program.part(part)[index];
  instruction.split.samples = slice;
  runner->batch = program.batch;
  runner->slice = slice;
  runner->program = Alone(program, part, std::move(instruction));
  RUNNEL_ASSIGN_OR_RETURN(runner->executable, backend->Prepare(runner->program));
  RUNNEL_ASSIGN_OR_RETURN(runner->around, Surround(runner->program));
  return runner;
}

absl::Status RunOnce(Part part, Runner& runner) {
  const double begin = CpuMs();
  RUNNEL_RETURN_IF_ERROR(runner.executable->Run(part, StepContext(), runner.around.bindings));
  runner.ms.push_back(CpuMs() - begin);
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> BenchProduct(const std::map<int64_t, Program>& programs, int part,
                                            size_t index, const Flags& flags, Backend* backend) {
  const int64_t batch = programs.rbegin()->first;
  const Program& whole = programs.at(batch);
  const Instruction& instruction = whole.part(kParts[part])[index];
  std::vector<std::unique_ptr<Runner>> runners;
  for (const auto& [samples, program] : programs) {
    RUNNEL_ASSIGN_OR_RETURN(auto of_its_own, MakeRunner(program, kParts[part], index, 0, backend));
    runners.push_back(std::move(of_its_own));
    if (samples == batch) continue;
    RUNNEL_ASSIGN_OR_RETURN(auto sliced, MakeRunner(whole, kParts[part], index, samples, backend));
    runners.push_back(std::move(sliced));
  }
  for (int64_t run = 0; run <= Number(flags, "--runs"); ++run) {
    for (auto& runner : runners) RUNNEL_RETURN_IF_ERROR(RunOnce(kParts[part], *runner));
  }
  nlohmann::json row = {{"part", kPartNames[part]},
                        {"layer", instruction.layer},
                        {"op", instruction.op},
                        {"code", std::string(Name(instruction.code))}};
  std::vector<BatchSeconds> profile;
  double whole_ms = 0, best_ms = 0;
  int64_t best = batch;
  for (auto& runner : runners) {
    runner->ms.erase(runner->ms.begin());  // cold
    const double ms = Median(runner->ms);
    const std::string name = std::to_string(runner->slice == 0 ? runner->batch : runner->slice);
    row[runner->slice == 0 ? "t_ms" : "in_slices_ms"][name] = ms;
    if (runner->slice == 0) profile.push_back({runner->batch, ms * 1e-3});
    if (runner->slice == 0 && runner->batch == batch) whole_ms = ms;
  }
  best_ms = whole_ms;
  for (auto& runner : runners) {
    if (runner->slice == 0 || Median(runner->ms) >= best_ms) continue;
    best_ms = Median(runner->ms);
    best = runner->slice;
  }
  row["by_profile"] = FastestSlice(batch, profile);
  row["in_place"] = best;
  row["gain"] = whole_ms / best_ms;
  return row;
}

absl::StatusOr<nlohmann::json> BenchProducts(const Flags& flags, Backend* backend) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(flags.at("--model")));
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe("niti"));
  std::map<int64_t, Program> programs;
  for (int64_t batch = Number(flags, "--batch"); batch >= 2; batch /= 2) {
    RUNNEL_ASSIGN_OR_RETURN(programs[batch],
                            CompileStage(model, 0, model.layer_count() - 1, batch, *recipe));
  }
  nlohmann::json rows = nlohmann::json::array();
  std::set<std::string> seen;
  for (int part = 0; part < 3; ++part) {
    const Program& whole = programs.rbegin()->second;
    for (size_t i = 0; i < whole.part(kParts[part]).size(); ++i) {
      const Instruction& instruction = whole.part(kParts[part])[i];
      if (!TraitsOf(instruction.code).is_integer_product()) continue;
      std::string key = absl::StrCat(Name(instruction.code), instruction.attributes.stride[0]);
      for (BufferIndex b : instruction.inputs)
        absl::StrAppend(&key, whole.buffers[static_cast<size_t>(b)].shape.ToString());
      if (!seen.insert(key).second) continue;
      RUNNEL_ASSIGN_OR_RETURN(nlohmann::json row, BenchProduct(programs, part, i, flags, backend));
      std::fprintf(stderr, "%s\n", row.dump().c_str());
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

struct Contender {
  std::string split;
  std::unique_ptr<StageExecutor> executor;
  std::vector<double> step_ms;
};

absl::StatusOr<Contender> MakeContender(const Flags& flags, const std::string& split,
                                        Backend* backend, BufferPool* pool) {
  StageExecutorOptions options;
  RUNNEL_ASSIGN_OR_RETURN(options.model, MakeModel(flags.at("--model")));
  options.last_layer = options.model.layer_count() - 1;
  options.training.batch_size = Number(flags, "--batch");
  options.training.dataset_samples = options.training.batch_size * 1000;
  options.training.batch_split = split;
  RUNNEL_ASSIGN_OR_RETURN(options.recipe, FindRecipe("niti"));
  options.one_in_flight = true;
  Contender contender = {split, nullptr, {}};
  RUNNEL_ASSIGN_OR_RETURN(contender.executor,
                          StageExecutor::Create(std::move(options), backend, pool));
  RUNNEL_RETURN_IF_ERROR(contender.executor->DrawState());
  std::fprintf(stderr, "%s: %s\n", split.c_str(), contender.executor->slices_found().c_str());
  return contender;
}

absl::StatusOr<nlohmann::json> BenchSteps(const Flags& flags, Backend* backend) {
  BufferPool pool;
  std::vector<Contender> contenders;
  for (const std::string& split :
       std::vector<std::string>(absl::StrSplit(flags.at("--splits"), ','))) {
    RUNNEL_ASSIGN_OR_RETURN(Contender contender, MakeContender(flags, split, backend, &pool));
    contenders.push_back(std::move(contender));
  }
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(flags.at("--model")));
  const int64_t batch = Number(flags, "--batch");
  std::vector<float> x(static_cast<size_t>(batch * model.input.elements()));
  std::vector<int32_t> labels(static_cast<size_t>(batch));
  for (int64_t step = 0; step <= Number(flags, "--steps"); ++step) {
    const CounterRandom random(1, RandomPurpose::kSyntheticData, 0, static_cast<uint64_t>(step));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.Normal(i));
    for (size_t i = 0; i < labels.size(); ++i)
      labels[i] = static_cast<int32_t>(i % static_cast<size_t>(model.classes));
    const MicroBatch place = {.sequence = Sequence(step),
                              .step = step,
                              .samples = batch,
                              .step_samples = batch,
                              .first_in_step = true,
                              .last_in_step = true};
    for (Contender& contender : contenders) {
      const auto payload = [](const auto& values) {
        return Payload::CopyOf(absl::MakeConstSpan(
            reinterpret_cast<const std::byte*>(values.data()), values.size() * 4));
      };
      const double begin = CpuMs();
      RUNNEL_RETURN_IF_ERROR(
          TrainMicroBatch(*contender.executor, place, payload(x), payload(labels)).status());
      if (step > 0) contender.step_ms.push_back(CpuMs() - begin);
    }
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const Contender& contender : contenders) {
    std::vector<double> ratios;
    for (size_t i = 0; i < contender.step_ms.size(); ++i)
      ratios.push_back(contenders[0].step_ms[i] / contender.step_ms[i]);
    rows.push_back({{"split", contender.split},
                    {"step_ms", Median(contender.step_ms)},
                    {"times_first", Median(ratios)},
                    {"found", contender.executor->slices_found()}});
  }
  return rows;
}

absl::StatusOr<nlohmann::json> Run(const Flags& flags) {
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                          MakeBackend(flags.at("--backend"), 1));
  nlohmann::json result = {{"model", flags.at("--model")},
                           {"backend", backend->description()},
                           {"batch", Number(flags, "--batch")}};
  if (Number(flags, "--steps") > 0) {
    RUNNEL_ASSIGN_OR_RETURN(result["steps"], BenchSteps(flags, backend.get()));
  }
  if (Number(flags, "--runs") > 0) {
    RUNNEL_ASSIGN_OR_RETURN(result["products"], BenchProducts(flags, backend.get()));
  }
  return result;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  runnel::Flags flags = {{"--model", "vgg11"}, {"--backend", "cpu"}, {"--batch", "64"},
                         {"--runs", "7"},      {"--steps", "15"},    {"--splits", "off,auto,4,16"},
                         {"--summary", ""}};
  if (!runnel::ReadFlags(argc, argv, flags)) return 2;
  return runnel::Report(runnel::Run(flags), flags);
}
