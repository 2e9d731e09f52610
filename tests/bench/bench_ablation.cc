// What each technique of Mandheling (MobiCom 2022, figure 10) takes off a training step of recipe
// niti: packets that the emulated DSP counts, submissions to it, bytes that cross to it and back.
// Counted, never timed: the same on every machine. One technique after the other is added.
//
// bench_ablation [--model vgg11] [--batch 4] [--micro-batches 2] [--switch-ms 25]
//                [--schedule-batch 64] [--rows 1,2,3,4,5] [--summary FILE]
//
// naive:         dynamic rescaling in two passes, weights packed for every use, all on the DSP, one
//                submission an operation, whose operands all cross
// + rescaling:   scales are kept, sums are rounded as they leave the product
// + splitting:   products take 4 samples at a time (--batch-split 4)
// + co-schedule: cpu and hexagon as scheduled for micro-batches of --schedule-batch at nominal
// rates;
//                a segment is one submission, values that the DSP wrote stay there
// + reuse:       packed weights are kept as long as their bytes are the same

#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/hexagon/emulated_session.h"
#include "kernels/backends/hexagon/hexagon_backend.h"
#include "kernels/backends/mixed/mixed_backend.h"
#include "kernels/backends/mixed/mixed_executable.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "nlohmann/json.hpp"
#include "partition/zoo/zoo.h"
#include "proto/base/model/rescale.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"
#include "tests/bench/bench_tools.h"
#include "worker/stage/plain_loop.h"
#include "worker/stage/stage_executor.h"

namespace runnel {
namespace {

using hexagon::DspCode;
using hexagon::DspOp;
using hexagon::DspTensor;

struct Row {
  const char* name;
  const char* rescale;
  const char* split;
  bool co_schedules;
  bool keeps_packed;
};
constexpr Row kRows[] = {
    {"naive port", "dynamic", "off", false, false},
    {"+ rescaling", "static:1", "off", false, false},
    {"+ batch splitting", "static:1", "4", false, false},
    {"+ co-scheduling", "static:1", "4", true, false},
    {"+ reuse", "static:1", "4", true, true},
};

// Of one step.
struct Counts {
  int64_t packets = 0;
  int64_t operations = 0;
  int64_t submissions = 0;
  int64_t operand_bytes = 0;
  std::map<std::string, int64_t> packets_by_kind;
};

const char* KindOf(const DspOp& op) {
  switch (op.code) {
    case DspCode::kConvForward:
      return "convolution, forward";
    case DspCode::kConvInputGradient:
      return "convolution, input-gradient";
    case DspCode::kConvWeightGradient:
      return "convolution, weight-gradient";
    case DspCode::kLinearForward:
    case DspCode::kLinearInputGradient:
    case DspCode::kLinearWeightGradient:
      return "linear";
    case DspCode::kRescale:
      return "rescaling in a pass of its own";
    case DspCode::kAddScaledGradient:
    case DspCode::kUpdate:
      return "gradients added, update";
    default:
      return "other";
  }
}

// Another session, whose operations are counted.
class CountingSession final : public hexagon::DspSession {
 public:
  CountingSession(std::unique_ptr<hexagon::DspSession> session, bool keeps_packed, Counts* counts)
      : session_(std::move(session)), keeps_packed_(keeps_packed), counts_(counts) {}

  const char* name() const override { return session_->name(); }
  const std::shared_ptr<hexagon::SharedMemory>& memory() const override {
    return session_->memory();
  }
  uint32_t packed_bytes() const override { return session_->packed_bytes(); }
  void KeepPlaces(uint32_t kept_bytes) override { session_->KeepPlaces(kept_bytes); }
  absl::Status Submit(absl::Span<const DspOp> ops, uint64_t list) override {
    ops_.assign(ops.begin(), ops.end());
    for (DspOp& op : ops_) {
      // Of bytes that may have changed nothing packed is kept.
      if (!keeps_packed_) op.in[0].version = op.in[1].version = 0;
    }
    return session_->Submit(ops_, list);
  }
  absl::Status Wait() override {
    RUNNEL_RETURN_IF_ERROR(session_->Wait());
    ++counts_->submissions;
    for (size_t i = 0; i < ops_.size(); ++i) {
      const uint32_t packets = session_->counts()[i].packets;
      counts_->packets += packets;
      counts_->packets_by_kind[KindOf(ops_[i])] += packets;
      ++counts_->operations;
      for (const DspTensor* tensor :
           {&ops_[i].in[0], &ops_[i].in[1], &ops_[i].out[0], &ops_[i].out[1], &ops_[i].mask}) {
        if (tensor->data != 0) counts_->operand_bytes += int64_t{tensor->elements} * tensor->bytes;
      }
    }
    return absl::OkStatus();
  }
  bool lost() const override { return session_->lost(); }
  absl::Span<const hexagon::DspCounts> counts() const override { return session_->counts(); }

 private:
  const std::unique_ptr<hexagon::DspSession> session_;
  const bool keeps_packed_;
  Counts* const counts_;
  std::vector<DspOp> ops_;
};

// Programs run as they are scheduled for another batch.
class ScheduledBackend final : public Backend {
 public:
  ScheduledBackend(std::vector<std::unique_ptr<Backend>> processors, ProgramSchedule schedule)
      : platform_(std::make_shared<Platform>(std::move(processors))),
        schedule_(std::move(schedule)) {}

  BackendTraits traits() const override {
    return {.name = "scheduled", .numerics_class = "scheduled", .rescales_in_products = true};
  }
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override {
    return AllocateHome(platform_->processor(0), {platform_, &platform_->versions}, bytes);
  }
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    RUNNEL_ASSIGN_OR_RETURN(const ProgramFlow flow, FollowValues(program));
    const Assignment assignment = schedule_.assignment();
    for (size_t part = 0; part < kPartCount; ++part) {
      if (assignment[part].size() != program.parts[part].size())
        return absl::InternalError("another batch has other instructions");
    }
    auto cut = [&](const std::vector<bool>& keeps_values) {
      return CutIntoSegments(program, flow, assignment, schedule_.grouping, keeps_values);
    };
    for (const Segment& segment : cut({false, false})) {
      if (segment.processor == 0 || segment.part == Part::kForwardEval) continue;
      for (const auto* copies : {&segment.in, &segment.out}) {
        for (const TensorCopy& copy : *copies) value_bytes_without_keeping_ += copy.bytes();
      }
    }
    std::vector<Segment> segments = cut(platform_->keeps_values);
    for (const Segment& segment : segments) {
      if (segment.processor == 0 || segment.part == Part::kForwardEval) continue;
      for (const auto* copies : {&segment.in, &segment.out}) {
        for (const TensorCopy& copy : *copies) value_bytes_ += copy.bytes();
      }
    }
    return PrepareSegments(std::move(segments), platform_);
  }

  int64_t moved_bytes() const {
    return platform_->traffic.bytes_to_processors + platform_->traffic.bytes_from_processors;
  }
  // Of values, a micro-batch; without the update.
  int64_t value_bytes() const { return value_bytes_; }
  int64_t value_bytes_without_keeping() const { return value_bytes_without_keeping_; }

 private:
  const std::shared_ptr<Platform> platform_;
  const ProgramSchedule schedule_;
  int64_t value_bytes_ = 0, value_bytes_without_keeping_ = 0;
};

struct Options {
  std::string model = "vgg11";
  int64_t batch = 4;
  int64_t micro_batches = 2;
  int64_t schedule_batch = 64;
  double switch_ms = 25;
};

absl::StatusOr<std::unique_ptr<Backend>> MakeDsp(bool keeps_packed, Counts* counts) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<std::string> command, hexagon::FindEmulator());
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<hexagon::DspSession> session,
                          hexagon::OpenEmulatedSession({.command = std::move(command)}));
  return hexagon::MakeBackendOn(
      std::make_unique<CountingSession>(std::move(session), keeps_packed, counts));
}

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> MakeProcessors(bool keeps_packed,
                                                                     Counts* counts) {
  std::vector<std::unique_ptr<Backend>> processors(2);
  RUNNEL_ASSIGN_OR_RETURN(processors[0], MakeBackend("cpu", 1));
  RUNNEL_ASSIGN_OR_RETURN(processors[1], MakeDsp(keeps_packed, counts));
  return processors;
}

absl::StatusOr<ProgramSchedule> ScheduleFor(const Options& options, const ModelSpec& model,
                                            const Row& row) {
  Counts unused;
  RUNNEL_ASSIGN_OR_RETURN(auto processors, MakeProcessors(true, &unused));
  MixedOptions mixed;
  mixed.counts = true;
  mixed.switch_seconds["hexagon"] = options.switch_ms * 1e-3;
  RUNNEL_ASSIGN_OR_RETURN(const auto scheduler, MakeCoScheduler(std::move(processors), mixed));
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe("niti"));
  CompileOptions compile;
  compile.accumulates_gradients = options.micro_batches > 1;
  compile.max_batch = options.schedule_batch;
  compile.one_in_flight = true;
  compile.rescales_in_products = true;
  RUNNEL_ASSIGN_OR_RETURN(compile.rescale, ParseRescale(row.rescale));
  RUNNEL_ASSIGN_OR_RETURN(
      const Program program,
      CompileStage(model, 0, model.layer_count() - 1, options.schedule_batch, *recipe, compile));
  return scheduler->Schedule(program);
}

double StepSeconds(const ProgramSchedule& schedule, int64_t micro_batches) {
  double seconds = 0;
  for (const Part part : {Part::kForward, Part::kInputGradient, Part::kWeightGradient})
    seconds += schedule.PartSeconds(part) * static_cast<double>(micro_batches);
  return seconds + schedule.PartSeconds(Part::kUpdate);
}

// One step that is not counted, in which scales are measured, and one that is.
absl::Status RunSteps(const Options& options, const ModelSpec& model, const Row& row,
                      Backend& backend, Counts& counts, int64_t& moved_before,
                      const std::function<int64_t()>& moved) {
  StageExecutorOptions stage;
  stage.model = model;
  stage.last_layer = model.layer_count() - 1;
  stage.training.batch_size = stage.training.eval_batch_size =
      options.batch * options.micro_batches;
  stage.training.micro_batches = static_cast<int>(options.micro_batches);
  stage.training.dataset_samples = 4 * stage.training.batch_size;
  stage.training.rescale = row.rescale;
  stage.training.batch_split = row.split;
  RUNNEL_ASSIGN_OR_RETURN(stage.recipe, FindRecipe("niti"));
  stage.one_in_flight = true;
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(stage.training));
  BufferPool pool;
  RUNNEL_ASSIGN_OR_RETURN(const auto executor,
                          StageExecutor::Create(std::move(stage), &backend, &pool));
  RUNNEL_RETURN_IF_ERROR(executor->DrawState());
  const int64_t elements = options.batch * model.input.elements();
  for (Sequence sequence; sequence.value() < 2 * options.micro_batches;
       sequence = sequence.next()) {
    if (sequence.value() == options.micro_batches) {
      counts = Counts();
      moved_before = moved();
    }
    const CounterRandom random(1, RandomPurpose::kTest, 0, static_cast<uint64_t>(sequence.value()));
    std::vector<float> x(static_cast<size_t>(elements));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.Uniform(i) * 2 - 1);
    std::vector<int32_t> labels(static_cast<size_t>(options.batch));
    for (size_t i = 0; i < labels.size(); ++i) {
      labels[i] =
          static_cast<int32_t>(random.Below(x.size() + i, static_cast<uint32_t>(model.classes)));
    }
    const auto payload = [](const auto& values) {
      return Payload::CopyOf(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                                                 values.size() * 4));
    };
    RUNNEL_RETURN_IF_ERROR(
        TrainMicroBatch(*executor, batching.Locate(sequence), payload(x), payload(labels))
            .status());
  }
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> RunRow(const Options& options, const Row& row) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(options.model));
  Counts counts;
  nlohmann::json result = {{"row", row.name}};
  int64_t moved_before = 0;
  if (!row.co_schedules) {
    RUNNEL_ASSIGN_OR_RETURN(const auto dsp, MakeDsp(row.keeps_packed, &counts));
    RUNNEL_RETURN_IF_ERROR(
        RunSteps(options, model, row, *dsp, counts, moved_before, [] { return 0; }));
    result["submissions"] = counts.operations;
    result["bytes"] = counts.operand_bytes;
  } else {
    RUNNEL_ASSIGN_OR_RETURN(ProgramSchedule schedule, ScheduleFor(options, model, row));
    result["nominal_step_ms"] = StepSeconds(schedule, options.micro_batches) * 1e3;
    RUNNEL_ASSIGN_OR_RETURN(auto processors, MakeProcessors(row.keeps_packed, &counts));
    ScheduledBackend backend(std::move(processors), std::move(schedule));
    RUNNEL_RETURN_IF_ERROR(RunSteps(options, model, row, backend, counts, moved_before,
                                    [&] { return backend.moved_bytes(); }));
    result["submissions"] = counts.submissions;
    result["bytes"] = backend.moved_bytes() - moved_before;
    result["value_bytes"] = backend.value_bytes();
    result["value_bytes_without_keeping"] = backend.value_bytes_without_keeping();
  }
  result["packets"] = counts.packets;
  result["operations"] = counts.operations;
  result["nominal_switches_ms"] = result["submissions"].get<double>() * 2 * options.switch_ms;
  for (const auto& [kind, packets] : counts.packets_by_kind) result["kinds"][kind] = packets;
  return result;
}

absl::StatusOr<nlohmann::json> Run(const Options& options, const std::string& rows) {
  nlohmann::json result = {{"model", options.model},
                           {"batch", options.batch},
                           {"micro_batches", options.micro_batches},
                           {"schedule_batch", options.schedule_batch},
                           {"switch_ms", options.switch_ms}};
  for (absl::string_view text : absl::StrSplit(rows, ',')) {
    int number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < 1 ||
        number > static_cast<int>(std::size(kRows)))
      return absl::InvalidArgumentError(absl::StrCat("--rows ", rows, ": rows are 1 to 5"));
    RUNNEL_ASSIGN_OR_RETURN(nlohmann::json row, RunRow(options, kRows[number - 1]));
    std::cerr << row.dump() << "\n";
    result["rows"].push_back(std::move(row));
  }
  return result;
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  runnel::Flags flags = {{"--model", "vgg11"},       {"--batch", "4"},
                         {"--micro-batches", "2"},   {"--switch-ms", "25"},
                         {"--schedule-batch", "64"}, {"--rows", "1,2,3,4,5"},
                         {"--summary", ""}};
  if (!runnel::ReadFlags(argc, argv, flags)) return 2;
  runnel::Options options;
  options.model = flags["--model"];
  if (!absl::SimpleAtoi(flags["--batch"], &options.batch) || options.batch < 1 ||
      !absl::SimpleAtoi(flags["--micro-batches"], &options.micro_batches) ||
      options.micro_batches < 1 ||
      !absl::SimpleAtoi(flags["--schedule-batch"], &options.schedule_batch) ||
      options.schedule_batch < 1 || !absl::SimpleAtod(flags["--switch-ms"], &options.switch_ms)) {
    std::cerr << "--batch, --micro-batches, --schedule-batch and --switch-ms are numbers\n";
    return 2;
  }
  return runnel::Report(runnel::Run(options, flags["--rows"]), flags);
}
