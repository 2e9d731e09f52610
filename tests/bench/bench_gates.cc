// Processor time of one training step beside gates, in turns with the same model without gates:
// nobody chooses (held gates), then gates that learn.
//
//   bench_gates [--model resnet20] [--batch 64] [--steps 9] [--recipe sbm:8,8,8] [--backend cpu]
//               [--options 0,3,4,6/6,6,8,12]
//
// Held gates draw evenly among the options that do not skip. Of gates that learn the samples differ in
// size, so that all options are chosen; the shares are printed, of the last step.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/work_tally.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"
#include "tests/kernels/stage_harness.h"

namespace runnel {
namespace {

struct Flags {
  std::string model = "resnet20", recipe = "sbm:8,8,8", backend = "cpu",
              options = "0,3,4,6/6,6,8,12";
  int64_t batch = 64;
  int steps = 9;
};

double CpuMs() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

class Tally final : public WorkTally, public ChoiceTally {
 public:
  void AddProduct(const Instruction&, const GridBits&, int64_t macs) override { macs_ += macs; }
  void AddChoice(const Instruction&, absl::Span<const int64_t> samples) override {
    by_option_.resize(std::max(by_option_.size(), samples.size()));
    for (size_t i = 0; i < samples.size(); ++i) by_option_[i] += samples[i];
  }
  void Clear() {
    macs_ = 0;
    by_option_.clear();
  }
  double macs() const { return static_cast<double>(macs_); }
  // "25 31 20 24 %"
  std::string Shares() const {
    std::string text;
    int64_t all = 0;
    for (const int64_t samples : by_option_) all += samples;
    for (const int64_t samples : by_option_)
      absl::StrAppend(&text, 100 * samples / std::max<int64_t>(1, all), " ");
    return text.empty() ? text : text + "%";
  }

 private:
  int64_t macs_ = 0;
  std::vector<int64_t> by_option_;
};

// A model in training, always on the same samples.
class Trainee {
 public:
  static absl::StatusOr<Trainee> Make(const std::string& gates, const Flags& flags,
                                      Backend* backend) {
    RUNNEL_ASSIGN_OR_RETURN(ModelSpec model, MakeModel(flags.model));
    if (!gates.empty()) {
      RUNNEL_ASSIGN_OR_RETURN(model, AddGates(model, gates));
    }
    RUNNEL_ASSIGN_OR_RETURN(TestPipeline pipeline,
                            TestPipeline::Make(model, {}, flags.batch, backend, 1, Checks::kOff,
                                               Steps::kApart, flags.recipe.c_str()));
    return Trainee(gates, flags, model.classes, std::move(pipeline));
  }

  absl::Status Step() {
    tally_.Clear();
    StepContext context = context_;
    context.work = &tally_;
    context.choices = &tally_;
    const double begin = CpuMs();
    RUNNEL_RETURN_IF_ERROR(pipeline_.ForwardBackward(x_.data(), labels_.data(), context));
    RUNNEL_RETURN_IF_ERROR(pipeline_.Update(context));
    times_.push_back(CpuMs() - begin);
    context_.sequence = context_.sequence.next();
    return absl::OkStatus();
  }
  // The first step, which finds cold memory.
  void Forget() { times_.clear(); }

  double MedianMs() const {
    std::vector<double> sorted = times_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  void Print(double plain_ms) const {
    std::printf("%-40s %9.1f %12.0f %10.2f %14.1f  %s\n",
                gates_.empty() ? "without gates" : gates_.c_str(), MedianMs(),
                1e3 * static_cast<double>(labels_.size()) / MedianMs(), MedianMs() / plain_ms,
                tally_.macs() / 1e6, tally_.Shares().c_str());
  }

 private:
  Trainee(std::string gates, const Flags& flags, int64_t classes, TestPipeline pipeline)
      : gates_(std::move(gates)), pipeline_(std::move(pipeline)) {
    x_.resize(static_cast<size_t>(pipeline_.stages[0]->program.input.elements()));
    const CounterRandom random(1, RandomPurpose::kSyntheticData, 0, 0);
    const size_t sample = x_.size() / static_cast<size_t>(flags.batch);
    for (size_t i = 0; i < x_.size(); ++i)
      x_[i] = static_cast<float>(random.Normal(i) * static_cast<double>(1 + i / sample % 8) / 4);
    for (int64_t i = 0; i < flags.batch; ++i) labels_.push_back(static_cast<int32_t>(i % classes));
    context_.run_seed = 1;
    context_.step_labels = flags.batch;
    context_.learning_rate = 1e-4;
    context_.momentum = 0.9;
  }

  std::string gates_;
  TestPipeline pipeline_;
  std::vector<float> x_;
  std::vector<int32_t> labels_;
  StepContext context_;
  Tally tally_;
  std::vector<double> times_;
};

absl::Status Bench(const Flags& flags) {
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackend(flags.backend, 1));
  std::vector<Trainee> trainees;
  for (const char* rule : {"", "@hold:0", "@hold:0.5", "@hold:1", "@beta:0.00001"}) {
    const std::string gates = *rule == '\0' ? "" : absl::StrCat("ff:", flags.options, rule);
    RUNNEL_ASSIGN_OR_RETURN(Trainee trainee, Trainee::Make(gates, flags, backend.get()));
    trainees.push_back(std::move(trainee));
  }
  for (int step = 0; step <= flags.steps; ++step) {
    for (Trainee& trainee : trainees) {
      RUNNEL_RETURN_IF_ERROR(trainee.Step());
      if (step == 0) trainee.Forget();
    }
  }
  std::printf("%s, %s, %s, batch %d, CPU time, median of %d\n%-40s %9s %12s %10s %14s  %s\n",
              flags.model.c_str(), flags.recipe.c_str(), backend->numerics_class().c_str(),
              static_cast<int>(flags.batch), flags.steps, "gates", "ms", "samples/s", "of plain",
              "million MACs", "by option");
  for (const Trainee& trainee : trainees) trainee.Print(trainees[0].MedianMs());
  return absl::OkStatus();
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  runnel::Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--model") flags.model = value;
    if (flag == "--recipe") flags.recipe = value;
    if (flag == "--backend") flags.backend = value;
    if (flag == "--options") flags.options = value;
    if (flag == "--batch") flags.batch = std::max(1, std::atoi(value.c_str()));
    if (flag == "--steps") flags.steps = std::max(1, std::atoi(value.c_str()));
  }
  const absl::Status status = runnel::Bench(flags);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
