#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/measure/lone_instruction.h"
#include "kernels/backends/tuner.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr Part kTrainingParts[] = {Part::kForward, Part::kInputGradient, Part::kWeightGradient};
// Less is noise, or soon will be.
constexpr double kLeastSaving = 0.03;
// Slices take turns, so that a slow moment meets all of them; the fastest time counts.
constexpr int kRounds = 2;
// Slices whose first run takes so many times the least one are not run again.
constexpr double kFarBehind = 1.3;

std::vector<int64_t> DivisorsOf(int64_t batch) {
  std::vector<int64_t> divisors;
  for (int64_t d = batch; d >= 1; --d) {
    if (batch % d == 0) divisors.push_back(d);
  }
  return divisors;
}

// Runs of one product in slices of one size.
struct Contender {
  int64_t samples = 0;
  Program program;
  std::unique_ptr<Executable> executable;
  double least_seconds = 0;
};

class Profiler {
 public:
  Profiler(Backend& backend, const Clock& clock, double limit_seconds, Program& program)
      : backend_(backend),
        clock_(clock),
        program_(program),
        begin_nanos_(clock.NowNanos()),
        limit_seconds_(limit_seconds) {}

  absl::StatusOr<SplitProfile> Run() {
    for (const Part part : kTrainingParts) {
      for (Instruction& instruction : program_.parts[static_cast<size_t>(part)]) {
        if (!TraitsOf(instruction.code).is_integer_product()) continue;
        RUNNEL_ASSIGN_OR_RETURN(const SplitChoice* choice, ChoiceFor(part, instruction));
        ++profile_.products;
        if (choice->profile.empty()) ++profile_.untimed;
        if (choice->samples == program_.batch) continue;
        ++profile_.split;
        instruction.split.samples = choice->samples;
      }
    }
    profile_.seconds = Seconds();
    return std::move(profile_);
  }

 private:
  double Seconds() const { return static_cast<double>(clock_.NowNanos() - begin_nanos_) * 1e-9; }

  bool IsLike(const Instruction& a, const Instruction& b) const {
    const auto same = [this](const std::vector<BufferIndex>& x, const std::vector<BufferIndex>& y) {
      return std::equal(x.begin(), x.end(), y.begin(), y.end(), [this](auto i, auto k) {
        const Buffer &p = program_.buffers[static_cast<size_t>(i)],
                     &q = program_.buffers[static_cast<size_t>(k)];
        return p.dtype == q.dtype && p.shape == q.shape;
      });
    };
    const OpSpec &p = a.attributes, &q = b.attributes;
    return a.code == b.code && same(a.inputs, b.inputs) && same(a.outputs, b.outputs) &&
           p.kernel == q.kernel && p.stride == q.stride && p.padding == q.padding &&
           p.groups == q.groups && p.dilation == q.dilation;
  }

  absl::StatusOr<const SplitChoice*> ChoiceFor(Part part, const Instruction& instruction) {
    for (const SplitChoice& known : profile_.choices) {
      if (IsLike(known.instruction, instruction)) return &known;
    }
    SplitChoice choice = {part, instruction, {}, program_.batch};
    if (Seconds() < limit_seconds_) RUNNEL_RETURN_IF_ERROR(Time(choice));
    profile_.choices.push_back(std::move(choice));
    return &profile_.choices.back();
  }

  absl::Status Time(SplitChoice& choice) {
    Instruction whole = choice.instruction;
    whole.split = {};
    const Program alone = Alone(program_, choice.part, std::move(whole));
    RUNNEL_ASSIGN_OR_RETURN(const Surroundings around, Surround(alone));
    std::vector<std::unique_ptr<Contender>> contenders;
    for (const int64_t samples : DivisorsOf(program_.batch)) {
      auto one = std::make_unique<Contender>(Contender{samples, alone, nullptr, -1});
      one->program.parts[static_cast<size_t>(choice.part)][0].split.samples = samples;
      RUNNEL_ASSIGN_OR_RETURN(one->executable, backend_.Prepare(one->program));
      RUNNEL_RETURN_IF_ERROR(RunOnce(choice.part, around.bindings, *one));
      contenders.push_back(std::move(one));
    }
    RUNNEL_RETURN_IF_ERROR(RunAgain(choice.part, around.bindings, contenders));
    for (const auto& one : contenders) {
      const auto slices = static_cast<double>(program_.batch / one->samples);
      choice.profile.push_back({one->samples, one->least_seconds / slices});
    }
    const int64_t fastest = FastestSlice(program_.batch, choice.profile);
    const double whole_seconds = contenders.front()->least_seconds;
    for (const auto& one : contenders) {
      const bool pays = one->least_seconds < (1 - kLeastSaving) * whole_seconds;
      if (one->samples == fastest && pays) choice.samples = fastest;
    }
    return absl::OkStatus();
  }

  // Runs those again that may be the fastest, and the whole batch, which a split is compared with.
  absl::Status RunAgain(Part part, const Bindings& bindings,
                        std::vector<std::unique_ptr<Contender>>& contenders) const {
    double least = contenders.front()->least_seconds;
    for (const auto& one : contenders) least = std::min(least, one->least_seconds);
    std::vector<Contender*> near;
    for (const auto& one : contenders) {
      if (one == contenders.front() || one->least_seconds <= kFarBehind * least)
        near.push_back(one.get());
    }
    for (Contender* one : near) one->least_seconds = -1;  // the first times met cold caches
    for (int round = 0; round < kRounds; ++round) {
      for (Contender* one : near) RUNNEL_RETURN_IF_ERROR(RunOnce(part, bindings, *one));
    }
    return absl::OkStatus();
  }

  absl::Status RunOnce(Part part, const Bindings& bindings, Contender& contender) const {
    const StepContext context;
    const int64_t begin = clock_.NowNanos();
    RUNNEL_RETURN_IF_ERROR(contender.executable->Run(part, context, bindings));
    const double seconds = static_cast<double>(clock_.NowNanos() - begin) * 1e-9;
    const bool is_least = contender.least_seconds < 0 || seconds < contender.least_seconds;
    if (is_least) contender.least_seconds = seconds;
    return absl::OkStatus();
  }

  Backend& backend_;
  const Clock& clock_;
  Program& program_;
  const int64_t begin_nanos_;
  const double limit_seconds_;
  SplitProfile profile_;
};

}  // namespace

std::string ToString(const SplitProfile& profile) {
  std::string text = absl::StrFormat("%d of %d products in slices (%.1f s of timing", profile.split,
                                     profile.products, profile.seconds);
  if (profile.untimed > 0)
    absl::StrAppend(&text, ", which did not suffice for ", profile.untimed, " of them");
  return absl::StrCat(text, ")");
}

absl::StatusOr<SplitProfile> SplitByProfile(Backend& backend, const Clock& clock,
                                            double limit_seconds, Program& program) {
  return Profiler(backend, clock, limit_seconds, program).Run();
}

}  // namespace runnel
